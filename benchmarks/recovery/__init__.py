"""How soon a run makes progress again after one of its workers was killed."""
