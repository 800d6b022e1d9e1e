"""The environments that come with Rayfish, one folder each; none of them needs Ray."""
