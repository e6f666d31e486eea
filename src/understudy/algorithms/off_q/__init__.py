"""Off-Q algorithms: they need demonstrations only. One file each, discovered by `understudy.algorithms`."""
