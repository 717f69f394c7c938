"""For clusters that keep their scheduler: it asks us which node and which GPU."""
