#include "text/jinja/scopes.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::text::jinja {

void Scopes::open(const Run& run, ScopeRef parent, Variables variables) {
  if (parent.index >= scopes_.size() || scopes_[parent.index].serial != parent.serial)
    run.fail("calling a macro or a loop after the block around it has ended is not supported");
  scopes_.push_back({std::move(variables), parent.index, ++last_serial_});
}

const Value* Scopes::find(std::string_view name) const {
  for (size_t i = scopes_.size() - 1;; i = scopes_[i].parent) {
    const auto found = scopes_[i].variables.find(name);
    if (found != scopes_[i].variables.end()) return &found->second;
    if (i == 0) return nullptr;
  }
}

void fail_duplicate_argument(const Run& run, std::string_view callee, std::string_view argument) {
  run.fail(fmt::format("{}() gets two values for '{}'; pass one", callee, argument));
}

void pass_caller(Run& run, const Statement& macro, Variables& variables, Value caller) {
  if (!macro.special.caller &&
      std::ranges::find(macro.parameters, "caller", &Parameter::name) == macro.parameters.end())
    run.fail(fmt::format("the macro {}() does not use caller(), so {{% call %}} cannot call it", macro.text));
  if (!variables.try_emplace("caller", std::move(caller)).second)
    fail_duplicate_argument(run, macro.text, "caller");
}

Variables bind(Run& run, const Statement& macro, const CallArguments& arguments) {
  const std::vector<Parameter>& parameters = macro.parameters;
  Variables variables;
  std::vector<Value> varargs;
  Json kwargs = Json::object();
  for (size_t i = 0; i < arguments.num_positional(); ++i) {
    if (i >= parameters.size()) {
      varargs.push_back(arguments.values[i]);
    } else {
      variables[parameters[i].name] = arguments.values[i];
    }
  }
  if (!varargs.empty() && !macro.special.varargs)
    run.fail(fmt::format("the macro {}() takes at most {} arguments, but the call has {}", macro.text,
                         parameters.size(), arguments.num_positional()));
  for (size_t i = 0; i < arguments.names.size(); ++i) {
    const std::string& name = arguments.names[i];
    const Value& value = arguments.values[arguments.num_positional() + i];
    run.spend(std::ssize(parameters) + std::ssize(kwargs));
    const auto known = std::ranges::find(parameters, name, &Parameter::name);
    if (known != parameters.end() && !variables.contains(name)) {
      variables[known->name] = value;
    } else if (macro.special.kwargs) {
      kwargs[name] = json_of(run, value);
    } else if (known != parameters.end()) {
      fail_duplicate_argument(run, macro.text, name);
    } else {
      run.fail(fmt::format("the macro {}() has no parameter {}", macro.text, name));
    }
  }
  if (macro.special.varargs)
    variables["varargs"] = list_value(run, varargs).with_print_type(PrintType::tuple);
  if (macro.special.kwargs) variables["kwargs"] = std::move(kwargs);
  return variables;
}

}  // namespace hearth::text::jinja
