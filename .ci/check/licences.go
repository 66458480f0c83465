package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is the output of `go mod download -json` for one module.
type module struct{ Path, Version, Dir, Error string }

// compatible are the licences that may be linked into a program under Apache-2.0 and distributed with it, by SPDX name, with a
// characteristic sentence of the licence, matched by its words. MPL-2.0 is the only weak copyleft licence: its section 3.3 allows
// larger works.
var compatible = []struct {
	name string
	text *regexp.Regexp
}{
	{"Apache-2.0", words("Apache License Version 2.0, January 2004")},
	{"MPL-2.0", words("Mozilla Public License Version 2.0")},
	{"MIT", words("Permission is hereby granted, free of charge, to any person obtaining a copy of this software and " +
		"associated documentation files")},
	{"BSD", words("Redistribution and use in source and binary forms, with or without modification, are permitted provided " +
		"that the following conditions are met")},
	{"ISC", words("Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is " +
		"hereby granted")},
	{"ISC", words("Permission to use, copy, modify, and distribute this software for any purpose with or without fee is " +
		"hereby granted")},
	{"CC0-1.0", words("CC0 1.0 Universal")},
	{"Unlicense", words("This is free and unencumbered software released into the public domain")},
}

// copyleft matches licences of the GNU family, and no compatible licence: MPL-2.0 mentions them as secondary licences.
var copyleft = regexp.MustCompile(`(?i)\bGNU\s+((LESSER|AFFERO|LIBRARY)\s+)?GENERAL\s+PUBLIC\s+LICENSE\s+Version`)

// words returns an expression that matches the words with any other characters between them, in any case.
func words(s string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b` + strings.Join(regexp.MustCompile(`\w+`).FindAllString(s, -1), `\W+`))
}

// licences passes when every module of go.mod, direct or indirect, has a licence, and a compatible one.
func licences(ctx context.Context, out io.Writer) (tally, error) {
	modules, err := requirements(ctx)
	if err != nil {
		return tally{}, err
	}
	counts := map[string]int{}
	var bad []error
	for _, m := range modules {
		found, err := licencesOf(m.Dir)
		if err != nil {
			bad = append(bad, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
			continue
		}
		counts[strings.Join(found, " and ")]++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(out, "%3d modules under %s\n", counts[name], name)
	}
	if bad != nil {
		return tally{}, errors.Join(bad...)
	}
	return tally{passed: 1}, nil
}

// requirements lists the modules in go.mod, and downloads missing ones. Since modules are pruned, those are all that provide a
// package to the build or the tests.
func requirements(ctx context.Context) ([]module, error) {
	text, err := output(ctx, plain, "go", "mod", "download", "-json")
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	var out []module
	for in := json.NewDecoder(strings.NewReader(text)); ; {
		var m module
		if err := in.Decode(&m); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[sc]e|copying|unlicense)([-._].*)?$`)

// licencesOf names the licences in the top folder of a module, sorted. It is an error if there is none, or an unknown or copyleft
// one.
func licencesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, e := range entries {
		// Licences of a module's documentation do not matter: it is not distributed.
		if !e.Type().IsRegular() || !licenceFile.MatchString(e.Name()) ||
			slices.Contains([]string{".go", ".docs"}, filepath.Ext(e.Name())) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		names := classify(string(text))
		if names == nil {
			return nil, fmt.Errorf("the licence in its %s is not known to be compatible with Apache-2.0", e.Name())
		}
		for _, n := range names {
			found[n] = true
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no licence file")
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// classify names the licences in a text, or returns nil if one is incompatible or none is known.
func classify(text string) []string {
	var names []string
	for _, l := range compatible {
		if l.text.MatchString(text) && !slices.Contains(names, l.name) {
			names = append(names, l.name)
		}
	}
	if copyleft.MatchString(text) && !slices.Contains(names, "MPL-2.0") {
		return nil
	}
	return names
}
