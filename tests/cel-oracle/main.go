// Command cel-oracle gives Kubernetes' own answers to CEL expressions. It compiles and evaluates
// each expression with the code of the kube-apiserver, in the environment of a
// ValidatingAdmissionPolicy that has only the variables object and variables.
//
//	cel-oracle answer FILE...     prints the golden file of the corpus files
//	cel-oracle serve              answers one JSON case per line of the standard input
//	cel-oracle list               prints the functions and types of the environment
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	// The time zones, for machines without a zone database.
	_ "time/tzdata"
)

// rounds is the number of times that each expression of the corpus is compiled and evaluated. Go
// iterates over maps in random order. If an answer depends on this order, two of the rounds differ
// almost certainly, and the case is reported as an error.
const rounds = 12

// roundsWithVariables is this number for a case with variables. The number is smaller, because each
// round creates an environment, which takes some milliseconds.
const roundsWithVariables = 3

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cel-oracle:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: cel-oracle answer FILE... | serve | list")
	}
	oracle, err := newOracle()
	if err != nil {
		return err
	}
	switch mode := args[0]; {
	case mode == "answer" && len(args) > 1:
		return answer(oracle, args[1:], os.Stdout)
	case mode == "serve" && len(args) == 1:
		return serve(oracle, os.Stdin, os.Stdout)
	case mode == "list" && len(args) == 1:
		return list(oracle, os.Stdout)
	default:
		return fmt.Errorf("usage: cel-oracle answer FILE... | serve | list")
	}
}

// header is the first line of the golden file.
type header struct {
	About string `json:"about"`
	// Names are the names of the objects, in the order of Objects.
	Names []string `json:"names"`
	// Objects are the JSON texts of the objects.
	Objects []string `json:"objects"`
}

// line is a case of the golden file.
type line struct {
	Topic string `json:"topic"`
	Expr  string `json:"expr"`
	// Object is the index of the object. If the index is absent, the variable object is null.
	Object    *int       `json:"object,omitempty"`
	Variables []variable `json:"variables,omitempty"`
	result
}

// answer evaluates the cases of the corpus files and writes the golden file.
func answer(oracle *oracle, files []string, out io.Writer) error {
	corpus, err := readCorpus(filepath.Join(filepath.Dir(files[0]), "objects"), files)
	if err != nil {
		return err
	}
	kubernetes, celGo := versions()
	head := header{
		About: "Answers of Kubernetes " + kubernetes + " (cel-go " + celGo + ") in the environment of " +
			"a ValidatingAdmissionPolicy with the variables `object` and `variables`. Made by " +
			"tests/cel-oracle/update; see tests/cel-oracle/README.md for the format.",
	}
	values := make([]any, len(corpus.objects))
	for i, object := range corpus.objects {
		head.Names = append(head.Names, object.name)
		head.Objects = append(head.Objects, object.text)
		if values[i], err = decodeObject([]byte(object.text)); err != nil {
			return fmt.Errorf("object %s: %w", object.name, err)
		}
	}

	buffered := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(head); err != nil {
		return err
	}
	unstable := 0
	for _, c := range corpus.cases {
		var object any
		if c.object != nil {
			object = values[*c.object]
		}
		first := oracle.ask(c.expr, object, c.variables)
		again := rounds
		if len(c.variables) > 0 {
			again = roundsWithVariables
		}
		for range again - 1 {
			if other := oracle.ask(c.expr, object, c.variables); other != first {
				fmt.Fprintf(os.Stderr, "%s: the answer varies: %s\n  %v\n  %v\n", c.place, c.expr, first, other)
				unstable++
				break
			}
		}
		if err := encoder.Encode(line{c.topic, c.expr, c.object, c.variables, first}); err != nil {
			return err
		}
	}
	if unstable > 0 {
		return fmt.Errorf("%d cases have no stable answer", unstable)
	}
	return buffered.Flush()
}

// question is a line of the standard input of serve.
type question struct {
	Expr string `json:"expr"`
	// Object is the value of the variable object. If the value is absent, the variable is null.
	Object    json.RawMessage `json:"object"`
	Variables []variable      `json:"variables"`
}

// serve reads one case per line and writes the answer before it reads the next line.
func serve(oracle *oracle, in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		text, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			if err := encoder.Encode(reply(oracle, text)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func reply(oracle *oracle, text []byte) result {
	var question question
	if err := json.Unmarshal(text, &question); err != nil {
		return result{Phase: phaseBadCase, V: err.Error()}
	}
	var object any
	if len(question.Object) > 0 {
		var err error
		if object, err = decodeObject(question.Object); err != nil {
			return result{Phase: phaseBadCase, V: err.Error()}
		}
	}
	return oracle.ask(question.Expr, object, question.Variables)
}

// versions returns the versions of Kubernetes and of cel-go that are linked into the program.
func versions() (kubernetes, celGo string) {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "?", "?"
	}
	for _, dependency := range info.Deps {
		switch dependency.Path {
		case "k8s.io/apiserver":
			kubernetes = strings.Replace(dependency.Version, "v0.", "v1.", 1)
		case "github.com/google/cel-go":
			celGo = dependency.Version
		}
	}
	return kubernetes, celGo
}
