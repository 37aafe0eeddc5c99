#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax.h"

namespace hearth::text::jinja {

using Variables = std::map<std::string_view, Value>;

/// The open scopes of a rendering: the template's, then those of loops, blocks and macros.
class Scopes {
 public:
  ScopeRef here() const { return {scopes_.size() - 1, scopes_.back().serial}; }
  Variables& variables() { return scopes_.back().variables; }
  void set(std::string_view name, Value value) { variables()[name] = std::move(value); }
  /// Opens a scope inside `parent`; UserError if that scope has ended.
  void open(const Run& run, ScopeRef parent, Variables variables = {});
  void close() { scopes_.pop_back(); }
  /// Searches the current scope and those that enclose it in the template; null if there is no such variable.
  const Value* find(std::string_view name) const;

 private:
  struct Scope {
    Variables variables;
    size_t parent = 0;   ///< scope that encloses it in the template; the first one encloses itself
    int64_t serial = 0;  ///< differs for every scope of a rendering
  };
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  int64_t last_serial_ = 0;
};

/// Evaluated arguments of a call.
struct CallArguments {
  std::vector<Value> values;
  std::vector<std::string> names;  ///< names of the last values

  size_t num_positional() const { return values.size() - names.size(); }
};

/// Assigns arguments to the parameters of a macro, varargs and kwargs; parameters without one are left out.
Variables bind(Run& run, const Statement& macro, const CallArguments& arguments);
/// Adds the body of a {% call %} block as the variable `caller`.
void pass_caller(Run& run, const Statement& macro, Variables& variables, Value caller);
/// UserError for an argument that is passed twice.
[[noreturn]] void fail_twice(const Run& run, std::string_view callee, std::string_view argument);

}  // namespace hearth::text::jinja
