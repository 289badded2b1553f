package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// corpus contains the cases of all corpus files. README.md describes the format of the files.
type corpus struct {
	objects []object
	cases   []testCase
}

type object struct {
	name string
	// text is the JSON text without white space.
	text string
}

type testCase struct {
	topic string
	// place is the file and the line, for messages.
	place     string
	expr      string
	object    *int
	variables []variable
}

// reference matches the name of a set in an expression, such as $NUMBERS. An operand of the set
// replaces the name.
var reference = regexp.MustCompile(`\$[A-Z][A-Z0-9_]*`)

// assignment matches the argument of the directives @set, @add and @variable.
var assignment = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*) = (.*)$`)

// number matches the prefix of a file name that determines the order of the files. The topic does
// not contain this prefix.
var number = regexp.MustCompile(`^[0-9]+-`)

func readCorpus(objects string, files []string) (*corpus, error) {
	corpus := &corpus{}
	if err := corpus.readObjects(objects); err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := corpus.readFile(file); err != nil {
			return nil, err
		}
	}
	return corpus, nil
}

func (c *corpus) readObjects(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		c.objects = append(c.objects, object{strings.TrimSuffix(filepath.Base(file), ".json"), compact.String()})
	}
	return nil
}

// section is what the directives of a corpus file have set so far.
type section struct {
	topic string
	// objects are the indexes of the objects for the next expressions. A nil index means that the
	// variable object is null.
	objects   []*int
	sets      map[string][]string
	variables []variable
}

func (c *corpus) readFile(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	section := section{
		topic:   number.ReplaceAllString(name, ""),
		objects: []*int{nil},
		sets:    map[string][]string{},
	}
	seen := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		place := fmt.Sprintf("%s:%d", filepath.Base(file), i+1)
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@text "):
			var expr string
			if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "@text ")), &expr); err != nil {
				return fmt.Errorf("%s: %w", place, err)
			}
			c.add(&section, place, expr, seen)
		case strings.HasPrefix(line, "@"):
			if err := c.directive(&section, line); err != nil {
				return fmt.Errorf("%s: %w", place, err)
			}
		default:
			exprs, err := section.expand(line)
			if err != nil {
				return fmt.Errorf("%s: %w", place, err)
			}
			for _, expr := range exprs {
				c.add(&section, place, expr, seen)
			}
		}
	}
	return nil
}

func (c *corpus) directive(section *section, line string) error {
	name, argument, _ := strings.Cut(line, " ")
	argument = strings.TrimSpace(argument)
	switch name {
	case "@objects":
		section.objects = nil
		for _, wanted := range strings.Fields(argument) {
			if wanted == "none" {
				section.objects = append(section.objects, nil)
				continue
			}
			index := slices.IndexFunc(c.objects, func(o object) bool { return o.name == wanted })
			if index < 0 {
				return fmt.Errorf("there is no object %q", wanted)
			}
			section.objects = append(section.objects, &index)
		}
	case "@set", "@add":
		match := assignment.FindStringSubmatch(argument)
		if match == nil {
			return fmt.Errorf("%s needs NAME = operand ;; operand", name)
		}
		var operands []string
		for operand := range strings.SplitSeq(match[2], " ;; ") {
			expanded, err := section.expand(strings.TrimSpace(operand))
			if err != nil {
				return err
			}
			operands = append(operands, expanded...)
		}
		if name == "@set" {
			section.sets[match[1]] = nil
		}
		section.sets[match[1]] = append(section.sets[match[1]], operands...)
	case "@variable":
		match := assignment.FindStringSubmatch(argument)
		if match == nil {
			return fmt.Errorf("@variable needs name = expression")
		}
		section.variables = append(slices.Clip(section.variables), variable{match[1], match[2]})
	case "@variables":
		if argument != "none" {
			return fmt.Errorf("@variables can only be none")
		}
		section.variables = nil
	default:
		return fmt.Errorf("unknown directive %s", name)
	}
	return nil
}

// expand replaces the names of sets in a line by operands, and returns one line for each
// combination of operands. If a line names one set twice, both places get the same operand.
func (s *section) expand(line string) ([]string, error) {
	name := reference.FindString(line)
	if name == "" {
		return []string{line}, nil
	}
	operands, known := s.sets[name[1:]]
	if !known {
		return nil, fmt.Errorf("there is no set %s", name)
	}
	// The name can be the beginning of the name of another set, so the code compares whole names.
	var all []string
	for _, operand := range operands {
		replaced := reference.ReplaceAllStringFunc(line, func(found string) string {
			if found == name {
				return operand
			}
			return found
		})
		expanded, err := s.expand(replaced)
		if err != nil {
			return nil, err
		}
		all = append(all, expanded...)
	}
	return all, nil
}

// add adds a case for each object of the section. Cases that the file already contains are skipped.
func (c *corpus) add(section *section, place, expr string, seen map[string]string) {
	for _, object := range section.objects {
		key := fmt.Sprintf("%q %v", expr, section.variables)
		if object != nil {
			key += fmt.Sprint(*object)
		}
		if _, known := seen[key]; known {
			continue
		}
		seen[key] = place
		c.cases = append(c.cases, testCase{section.topic, place, expr, object, section.variables})
	}
}
