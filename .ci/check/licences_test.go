package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestClassify(t *testing.T) {
	const (
		apache = "                                 Apache License\n                           Version 2.0, January 2004\n"
		mit    = "Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software and associated documentation files (the \"Software\")"
		bsd    = "// Redistribution and use in source and binary forms, with or without\n// modification, are permitted provided that the following conditions are\n// met:"
		gpl    = "                    GNU GENERAL PUBLIC LICENSE\n                       Version 3, 29 June 2007"
		lgpl   = "GNU LESSER GENERAL PUBLIC LICENSE\nVersion 2.1, February 1999"
		agpl   = "GNU AFFERO GENERAL PUBLIC LICENSE Version 3"
		mpl    = "Mozilla Public License Version 2.0\n=====\n\"Secondary License\" means either the GNU General Public License, Version 2.0"
	)
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"Apache", apache, []string{"Apache-2.0"}},
		{"MIT", mit, []string{"MIT"}},
		{"BSD in comments", bsd, []string{"BSD"}},
		{"two in one file", apache + "\n---\n" + mit, []string{"Apache-2.0", "MIT"}},
		{"MPL, which names the GNU's", mpl, []string{"MPL-2.0"}},
		{"GPL", gpl, nil},
		{"LGPL", lgpl, nil},
		{"AGPL", agpl, nil},
		{"GPL beside MIT", mit + "\n" + gpl, nil},
		{"something else", "All rights reserved.", nil},
		{"nothing", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := classify(test.text); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLicencesOf(t *testing.T) {
	own, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		files map[string]string
		want  []string
		err   string
	}{
		{"one", map[string]string{"LICENSE": string(own), "README.md": ""}, []string{"Apache-2.0"}, ""},
		{"another spelling", map[string]string{"LICENCE.txt": string(own)}, []string{"Apache-2.0"}, ""},
		{"none", map[string]string{"README.md": string(own)}, nil, "no licence file"},
		{"an unknown one beside a known one", map[string]string{"LICENSE": string(own), "COPYING": "ask us"}, nil, "COPYING"},
		{"of the documentation", map[string]string{"LICENSE": string(own), "LICENSE.docs": "ask us"}, []string{"Apache-2.0"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := licencesOf(dir)
			if !slices.Equal(got, test.want) || (err != nil) != (test.err != "") || err != nil &&
				!strings.Contains(err.Error(), test.err) {
				t.Errorf("got %q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}
