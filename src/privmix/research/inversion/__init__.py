"""Model inversion: which images an attacker gets out of released rows (He et al. 2019; Li et al. 2022, appendix G)."""
