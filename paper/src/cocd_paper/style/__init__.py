"""What every picture and page of the package has in common: colours, axes, style sheet."""
