"""The report page: one HTML file with charts, tables and pictures that needs no network."""
