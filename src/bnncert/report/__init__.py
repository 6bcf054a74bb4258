"""How answers are shown: tables, pictures, and the files other tools read."""
