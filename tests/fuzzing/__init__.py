"""Broken files of every format: small valid ones, random changes of them, and their readers."""
