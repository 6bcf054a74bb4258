"""Binary networks in normal form."""
