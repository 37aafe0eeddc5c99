#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace hearth::text {

/// Bytes [begin, end) of a text.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

/// What one thread needs to match; any Regex may use it.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  pcre2_real_match_context_8* context_;
  pcre2_real_jit_stack_8* stack_;
};

/// A Perl regular expression over Unicode (PCRE2, compiled to machine code where it can be). \s takes U+180E,
/// which the engine of Hugging Face's tokenizers does not; otherwise the two agree on their patterns.
class Regex {
 public:
  /// UserError naming `where` when the pattern does not compile.
  Regex(std::string_view pattern, std::string_view where);

  /// The first match at or after `from` in `text`, which must be valid UTF-8. UserError when the pattern
  /// gives up.
  std::optional<Range> find(std::string_view text, size_t from, RegexScratch& scratch) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string where_;
};

}  // namespace hearth::text
