// The CustomResourceDefinitions of OLM, which the tests of the bundle install. Nothing is compiled.
module ifo/tests/olm

go 1.26.0

require github.com/operator-framework/api v0.37.0
