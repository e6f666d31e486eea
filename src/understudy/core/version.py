"""The version of the package: pyproject.toml, the site and CITATION.cff take it from here."""

__version__ = "0.2.0"
