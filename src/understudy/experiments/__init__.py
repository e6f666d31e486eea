"""One file for each figure or table of the paper: `understudy reproduce FIGURE`."""
