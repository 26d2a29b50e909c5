# Each target is one line of what it does; the work is in tools/. Windows: see README.md.
PYTHON ?= python3
PY := .venv/bin/python
PORT ?= 8000

.PHONY: help book pdf test train bench export execute serve stamp clean env

help:     ## list the targets
	@grep -E '^[a-z]+: .*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

book: env ## build the site and serve it (SERVE=0: only build)
	$(PY) tools/site.py build $(if $(filter 0,$(SERVE)),,--serve --port $(PORT))

pdf: env  ## print the book as one PDF, with Chromium (ARGS="--paper letter")
	$(PY) tools/pdf.py $(ARGS)

test: env ## everything CI runs
	$(PY) tools/check.py

train: env ## train the current GPT on Tiny Shakespeare (ARGS="--help" lists options)
	$(PY) -m minigpt.train $(ARGS)

bench: env ## speed, memory and losses of the recipes as one table (ARGS="--train" trains, too)
	$(PY) benchmarks/gpt.py $(ARGS)
	$(PY) benchmarks/generate.py

export: env ## write minigpt/*.py from the chapters, and models.md from its data
	$(PY) tools/export.py
	$(PY) tools/models.py

execute: env ## run the chapters in place and store their outputs (ARGS="chapters/02_attention.ipynb")
	$(PY) tools/data.py
	$(PY) tools/execute.py $(ARGS)

serve: env ## serve the site that is already built
	$(PY) tools/site.py serve --port $(PORT)

stamp: env ## write the repository's address everywhere (REPO=https://github.com/me/my-book)
	$(PY) tools/stamp.py $(if $(REPO),--repo $(REPO))

clean:    ## remove what was built (keeps .venv and the data cache)
	rm -rf _build _assets/vendor dist build *.egg-info

env:
	@$(PYTHON) tools/bootstrap.py
