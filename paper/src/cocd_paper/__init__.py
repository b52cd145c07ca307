"""The paper's experiments: plans, one file for each table and figure, and how they give rows."""
