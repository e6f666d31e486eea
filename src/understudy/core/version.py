"""The version of the package. pyproject.toml and the site read it; tests compare CITATION.cff and CHANGELOG.md."""

__version__ = "0.2.0"
