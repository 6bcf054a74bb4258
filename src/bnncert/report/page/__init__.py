"""The report page: one HTML file with charts, tables and pictures that needs no network."""

from bnncert.report.page.document import write_page

__all__ = ["write_page"]
