"""Each framework for real, on CPU: `make test-frameworks` installs them and runs this folder."""
