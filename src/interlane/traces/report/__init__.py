"""Reports about a trace: what is in it, figure by figure, beside what the paper found."""
