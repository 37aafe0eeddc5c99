#pragma once

#include <cstddef>
#include <cstdint>
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
  /// For machine code, whose steps may each pass over the whole text, and for the interpreter.
  pcre2_real_match_context_8* quick_;
  pcre2_real_match_context_8* exact_;
  /// Where a match begins and ends.
  const size_t* pair_;
  /// The last start of a match that is tried with quick_.
  size_t last_ = SIZE_MAX;
  pcre2_real_jit_stack_8* stack_;
};

/// What the matches in one text may cost: half a second of the thread's time and 2 us per byte.
class MatchTime {
 public:
  explicit MatchTime(size_t text_bytes);
  /// Time counts from here to `stop`, as often as that says.
  void start();
  void stop(double weight) {
    if (runs_) add(weight);
  }
  /// The first call starts the time where it does not run.
  bool is_over();

 private:
  void add(double weight);
  double allowed_;
  double spent_ = 0;
  double since_ = 0;
  bool counts_;
  bool runs_ = false;
};

/// A regular expression as Oniguruma reads it, the engine of Hugging Face's tokenizers, in Unicode 14 (PCRE2,
/// compiled to machine code where it can be).
class Regex {
 public:
  /// UserError naming `where` when the pattern does not compile or the engines read it differently.
  Regex(std::string_view pattern, std::string_view where);

  /// The first match at or after `from` in `text`, which must be valid UTF-8. UserError when the pattern
  /// gives up, or the time is over.
  std::optional<Range> find(std::string_view text, size_t from, RegexScratch& scratch, MatchTime& time) const;
  void check(MatchTime& time, size_t text_bytes) const;

 private:
  /// The result of PCRE2 for starts of a match from `begin` to `last`, by machine code, in few steps.
  int match_quickly(std::string_view text, size_t begin, size_t last, RegexScratch& scratch) const;
  int match(std::string_view text, size_t from, RegexScratch& scratch, MatchTime& time) const;
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::string where_;
  bool is_machine_code_ = false;
};

}  // namespace hearth::text
