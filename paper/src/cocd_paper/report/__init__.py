"""The report: rows -> tables, figures, one HTML page, a page of documentation.

It reads rows and nothing else, and computes nothing but statistics of rows.
"""
