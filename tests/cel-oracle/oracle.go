package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The phases of an answer.
const (
	phaseOK         = "ok"
	phaseCompileErr = "compile-err"
	phaseEvalErr    = "eval-err"
	// phaseBadCase means that serve cannot read the case, or that the environment for the variables of
	// the case cannot be created.
	phaseBadCase = "bad-case"
)

// evaluationLimit is the time after which an evaluation is canceled. Kubernetes' cost limit stops
// expensive evaluations earlier, so no case of the corpus reaches this time.
const evaluationLimit = 20 * time.Second

// result is the answer to a case.
type result struct {
	Phase string `json:"phase"`
	// V is the value (see formatValue), the first line of the compile error, or the error of another
	// phase.
	V string `json:"v"`
}

// variable is a variable of the policy. The expression may use object and the earlier variables of
// the case.
type variable struct {
	Name       string `json:"name"`
	Expression string `json:"expression"`
}

// GetName, GetExpression and ReturnTypes implement Kubernetes' interface NamedExpressionAccessor.
func (v variable) GetName() string          { return v.Name }
func (v variable) GetExpression() string    { return v.Expression }
func (v variable) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType, cel.DynType} }

// oracle compiles and evaluates expressions as a ValidatingAdmissionPolicy does.
type oracle struct {
	// base is the environment of Kubernetes with the variable object.
	base *environment.EnvSet
	// plain is the compiler for the cases without variables.
	plain *compiler
}

func newOracle() (*oracle, error) {
	base, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(
		environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0),
			EnvOptions:        []cel.EnvOption{cel.Variable(plugincel.ObjectVarName, cel.DynType)},
		},
		environment.StrictCostOpt,
	)
	if err != nil {
		return nil, err
	}
	oracle := &oracle{base: base}
	oracle.plain, err = oracle.compiler()
	return oracle, err
}

// compiler compiles expressions in an environment with the variables of one case, or without
// variables. Kubernetes' CompositedCompiler contains these variables.
type compiler struct {
	composited *plugincel.CompositedCompiler
	env        *cel.Env
}

func (o *oracle) compiler() (*compiler, error) {
	// This constructor adds only the variable named variables. NewCompositedCompiler also adds
	// oldObject, request and namespaceObject, which must be unknown here.
	composited, err := plugincel.NewCompositedCompilerForTypeChecking(o.base)
	if err != nil {
		return nil, err
	}
	env, err := composited.Env(environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	compiler := &compiler{composited, env}
	composited.Compiler = compiler
	return compiler, nil
}

// CompileCELExpression implements the interface Compiler of Kubernetes' package plugincel. The
// CompositedCompiler calls this function to compile the expression of a variable.
func (c *compiler) CompileCELExpression(expression plugincel.ExpressionAccessor, _ plugincel.OptionalVariableDeclarations, _ environment.Type) plugincel.CompilationResult {
	program, outputType, err := c.compile(expression.GetExpression())
	if err != nil {
		return plugincel.CompilationResult{
			Error:              &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: err.Error()},
			ExpressionAccessor: expression,
		}
	}
	return plugincel.CompilationResult{Program: program, ExpressionAccessor: expression, OutputType: outputType}
}

func (c *compiler) compile(expression string) (cel.Program, *cel.Type, error) {
	ast, issues := c.env.Compile(expression)
	if issues != nil {
		return nil, nil, fmt.Errorf("%s", issues.String())
	}
	program, err := c.env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return nil, nil, fmt.Errorf("program instantiation failed: %w", err)
	}
	return program, ast.OutputType(), nil
}

// ask compiles and evaluates an expression. If Kubernetes' code panics, the answer is an error of
// the phase that panics. A kube-apiserver answers such a request with an internal error.
func (o *oracle) ask(expression string, object any, variables []variable) (answer result) {
	phase := phaseCompileErr
	defer func() {
		if cause := recover(); cause != nil {
			answer = result{phase, "panic: " + fmt.Sprint(cause)}
		}
	}()
	compiler := o.plain
	if len(variables) > 0 {
		var err error
		if compiler, err = o.compiler(); err != nil {
			return result{phaseBadCase, err.Error()}
		}
		for _, v := range variables {
			compiled := compiler.composited.CompileAndStoreVariable(v, plugincel.OptionalVariableDeclarations{}, environment.NewExpressions)
			if compiled.Error != nil {
				return result{phaseCompileErr, "variable " + v.Name + ": " + firstLine(compiled.Error.Detail)}
			}
		}
	}
	program, _, err := compiler.compile(expression)
	if err != nil {
		return result{phaseCompileErr, firstLine(err.Error())}
	}

	phase = phaseEvalErr
	ctx, cancel := context.WithTimeout(context.Background(), evaluationLimit)
	defer cancel()
	context := compiler.composited.CreateContext(ctx)
	activation := &activation{object: object}
	activation.variables = context.Variables(activation)
	value, _, err := program.ContextEval(context, activation)
	if err != nil {
		return result{phaseEvalErr, err.Error()}
	}
	text, err := formatValue(value)
	if err != nil {
		return result{phaseEvalErr, err.Error()}
	}
	return result{phaseOK, text}
}

// activation resolves the names object and variables in an expression.
type activation struct {
	object    any
	variables ref.Val
}

func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case plugincel.ObjectVarName:
		return a.object, true
	case plugincel.VariableVarName:
		return a.variables, true
	default:
		return nil, false
	}
}

func (a *activation) Parent() interpreter.Activation { return nil }

// decodeObject decodes JSON as the kube-apiserver decodes an unstructured object. Numbers without
// fraction and exponent become int64 if they fit, and all other numbers become float64.
func decodeObject(text []byte) (any, error) {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err == nil {
		if object == nil {
			return nil, nil
		}
		return object, nil
	}
	var value any
	err := json.Unmarshal(text, &value)
	return value, err
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
