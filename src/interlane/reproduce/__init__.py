"""Published results that we reproduce, each by name: the paper's number beside ours."""
