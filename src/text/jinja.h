#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// JSON whose objects keep the order of their keys, which templates print.
using Json = nlohmann::ordered_json;

/// Bytes [first, last) of a text.
struct Span {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const Span&) const = default;
};

struct Rendered {
  std::string text;
  /// What stands inside {% generation %} blocks, in order.
  std::vector<Span> generated;
};

/// Work that several renderings may take together, such as those of all records of a file.
struct WorkBudget {
  int64_t left = 0;
};

struct RenderOptions {
  /// Seconds since 1970 (UTC) that strftime_now shows; without it templates find strftime_now undefined.
  std::optional<int64_t> now;
  /// Longest text; a template that would print more is a UserError.
  int64_t limit_bytes = int64_t{64} << 20;
  /// Evaluated expressions and, by sixteens, bytes that are copied or searched; a template that needs more is
  /// a UserError. Charged before memory is taken, which it bounds too: to some 16 bytes for each.
  int64_t limit_work = 20'000'000;
  /// Where given, the work is taken from here too. Used by one rendering at a time.
  WorkBudget* budget = nullptr;
};

namespace jinja {
struct Program;
}

/// A chat template: the part of Jinja 2.11 to 3.1 that chat templates use, set up as Hugging Face sets it up
/// (trim_blocks, lstrip_blocks, loop controls, tojson without ASCII escapes, {% generation %}).
///
/// Supported statements: if, for (with if, else, recursive, break, continue), set (of variables, namespace
/// attributes and blocks), with, filter, macro, call, generation, raw. The supported filters, tests, methods
/// and functions are in the tables in src/text/jinja/. Templates cannot access files, the network or the
/// program.
class Template {
 public:
  /// Parses; UserError "NAME:LINE: ..." for a mistake and for a tag that is not supported. Filters, tests,
  /// methods, functions and arguments that are not supported fail when they are reached.
  Template(std::string_view source, std::string name);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  /// The text for an object of variables (messages, add_generation_prompt, bos_token, ...). Thread-safe.
  /// UserError "NAME:LINE: ..." for raise_exception, for operations on values that do not have them, and at
  /// the limits.
  Rendered render(const Json& variables, const RenderOptions& options = {}) const;

  /// Whether the template may ask for the date.
  bool asks_date() const;
  /// Whether the template marks what the assistant says by {% generation %}.
  bool marks_generation() const;
  const std::string& name() const;
  const std::string& source() const;

 private:
  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace hearth::text
