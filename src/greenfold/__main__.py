"""`python -m greenfold` is the command line."""

from greenfold.cli import app

if __name__ == "__main__":
    app()
