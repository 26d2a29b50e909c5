"""How the pages of the site become one book for paper: `tools/pdf.py` uses it."""
