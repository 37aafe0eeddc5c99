#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// JSON whose objects keep the order of their keys, since templates print them in order.
using Json = nlohmann::ordered_json;

/// Bytes [first, last) of a text.
struct Span {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const Span&) const = default;
};

/// Result of rendering a template.
struct Rendered {
  std::string text;
  /// Byte ranges of `text` that {% generation %} blocks printed, in order.
  std::vector<Span> generated;
};

/// Remaining work in units of RenderOptions::limit_work, shared by several renderings, such as those of all
/// records of a file.
struct WorkBudget {
  int64_t left = 0;
};

/// Inputs and limits of a rendering.
struct RenderOptions {
  /// Time that strftime_now prints, in seconds since 1970 (UTC). If not set, strftime_now is undefined in
  /// templates.
  std::optional<int64_t> now;
  /// Max bytes of the rendered text. A template that would print more causes a UserError.
  int64_t limit_bytes = int64_t{64} << 20;
  /// Max work of one rendering, in units: one per evaluated expression, and one per 16 bytes copied or
  /// searched. A template that needs more causes a UserError. Work is charged before memory is allocated, so
  /// this also limits memory, to about 16 bytes per unit.
  int64_t limit_work = 20'000'000;
  /// If not null, work is also charged to this budget. Only one rendering at a time may use a budget.
  WorkBudget* budget = nullptr;
};

namespace jinja {
struct Program;
}

/// A chat template: the subset of Jinja 2.11 to 3.1 that chat templates use, configured as in transformers
/// (trim_blocks, lstrip_blocks, loop controls, tojson without ASCII escapes, {% generation %}).
///
/// Supported statements: if, for (with if, else, recursive, break, continue), set (of variables, namespace
/// attributes and blocks), with, filter, macro, call, generation, raw. The supported filters, tests, methods
/// and functions are in the tables in src/text/jinja/. Templates cannot access files, the network or the
/// program.
class Template {
 public:
  /// Parses a template. Throws a UserError "NAME:LINE: ..." for a syntax error or an unsupported tag.
  /// Unsupported filters, tests, methods, functions and arguments cause an error only when they are
  /// evaluated.
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// Renders the template. `variables`: object with messages, add_generation_prompt, bos_token, ...
  /// Thread-safe. Throws a UserError "NAME:LINE: ..." if the template calls raise_exception or uses an
  /// operation that a value does not support, and if a limit is exceeded.
  Rendered render(const Json& variables, const RenderOptions& options = {}) const;

  /// True if the template uses the date (strftime_now).
  bool asks_date() const;
  /// True if the template marks the assistant's text by {% generation %}.
  bool marks_generation() const;
  const std::string& name() const;
  const std::string& source() const;

 private:
  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace hearth::text
