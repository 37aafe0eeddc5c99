#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax.h"

namespace hearth::text::jinja {

using Variables = std::map<std::string_view, Value>;

/// Stack of the variable scopes that are open during a rendering: the scope of the template, then those of
/// loops, blocks and macro calls. Names are looked up lexically, see find().
class Scopes {
 public:
  ScopeRef here() const { return {scopes_.size() - 1, scopes_.back().serial}; }
  Variables& variables() { return scopes_.back().variables; }
  void set(std::string_view name, Value value) { variables()[name] = std::move(value); }
  /// Opens a scope whose lexical parent is `parent`. Throws a UserError if `parent` has been closed.
  void open(const Run& run, ScopeRef parent, Variables variables = {});
  /// Closes the current scope.
  void close() { scopes_.pop_back(); }
  /// Searches for a variable in the current scope and its lexical parents; returns null if there is none.
  const Value* find(std::string_view name) const;

 private:
  struct Scope {
    Variables variables;
    size_t parent = 0;   ///< index of the lexical parent; 0 for the first scope
    int64_t serial = 0;  ///< unique number of the scope within a rendering
  };
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  int64_t last_serial_ = 0;
};

/// Evaluated arguments of a call.
struct CallArguments {
  std::vector<Value> values;
  std::vector<std::string> names;  ///< names of the keyword arguments, which are the last of `values`

  size_t num_positional() const { return values.size() - names.size(); }
};

/// Assigns the arguments of a call to the parameters of a macro, varargs and kwargs. Returns the resulting
/// variables; parameters without an argument are not included.
Variables bind(Run& run, const Statement& macro, const CallArguments& arguments);
/// Adds the variable `caller`: the body of a {% call %} block, as a function. Throws a UserError if the macro
/// does not use it.
void pass_caller(Run& run, const Statement& macro, Variables& variables, Value caller);
/// Throws a UserError because an argument is passed twice in a call of `callee`.
[[noreturn]] void fail_duplicate_argument(const Run& run, std::string_view callee, std::string_view argument);

}  // namespace hearth::text::jinja
