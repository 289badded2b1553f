package main

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/google/cel-go/cel"
)

// list prints the functions with their overloads, the macros and the variables of the environment.
func list(oracle *oracle, out io.Writer) error {
	env := oracle.plain.env
	var lines []string
	for name, function := range env.Functions() {
		for _, overload := range function.OverloadDecls() {
			var args []string
			for _, arg := range overload.ArgTypes() {
				args = append(args, cel.FormatCELType(arg))
			}
			signature := ""
			if overload.IsMemberFunction() {
				signature, args = "<"+args[0]+">.", args[1:]
			}
			signature += name + "(" + strings.Join(args, ", ") + ") -> " + cel.FormatCELType(overload.ResultType())
			lines = append(lines, "function "+signature)
		}
	}
	for _, macro := range env.Macros() {
		receiver := ""
		if macro.IsReceiverStyle() {
			receiver = "<x>."
		}
		lines = append(lines, fmt.Sprintf("macro %s%s/%d", receiver, macro.Function(), macro.ArgCount()))
	}
	for _, variable := range env.Variables() {
		lines = append(lines, "variable "+variable.Name()+": "+cel.FormatCELType(variable.Type()))
	}
	for _, library := range env.Libraries() {
		lines = append(lines, "library "+library)
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Fprintln(out, line)
	}
	return nil
}
