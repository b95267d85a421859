"""What made a result: snapshot of the code, four axes, manifest, differences."""
