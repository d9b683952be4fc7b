"""Research: reproductions of papers and studies of attacks, on privmix's public names and entry points alone."""
