"""The minimum over sign patterns by eliminating one variable after another."""
