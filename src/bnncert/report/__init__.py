"""Answers for people and other tools: tables, pictures, pages and files."""
