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

/// Match state of one thread. Any Regex may use it.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  pcre2_real_match_data_8* data_;
  /// PCRE2 contexts with match limits: quick_ for JIT-compiled code, exact_ for the interpreter.
  pcre2_real_match_context_8* quick_;
  pcre2_real_match_context_8* exact_;
  /// Begin and end offset of the last match (PCRE2's ovector).
  const size_t* pair_;
  /// Offset limit that is currently set in quick_: the last offset at which a match may start.
  size_t last_ = SIZE_MAX;
  pcre2_real_jit_stack_8* stack_;
};

/// Time limit for all matches in one text: 0.5 s plus 2 us per byte of the thread's CPU time.
class MatchTime {
 public:
  explicit MatchTime(size_t text_bytes);
  /// Starts measuring time; stop(weight) ends it and adds the measured time, multiplied by `weight`, to the
  /// spent time.
  void start();
  void stop(double weight) {
    if (runs_) add(weight);
  }
  /// True if the time limit is exceeded. If no measurement is running, starts one.
  bool is_over();

 private:
  void add(double weight);
  double allowed_;
  double spent_ = 0;
  double since_ = 0;
  bool counts_;
  bool runs_ = false;
};

/// A regular expression with the syntax and meaning of Oniguruma, the engine of Hugging Face's tokenizers,
/// for Unicode 14. Runs on PCRE2, JIT-compiled where possible.
class Regex {
 public:
  /// Compiles a pattern. Throws a UserError naming `where` if it is invalid or if Oniguruma and PCRE2
  /// interpret it differently.
  Regex(std::string_view pattern, std::string_view where);

  /// Returns the first match at or after `from`, or nothing. `text` must be valid UTF-8. Throws a UserError
  /// if the engine reaches its match limit or `time` is over.
  std::optional<Range> find(std::string_view text, size_t from, RegexScratch& scratch, MatchTime& time) const;
  /// Throws a UserError if `time` is over; `text_bytes` is for the message.
  void check(MatchTime& time, size_t text_bytes) const;

 private:
  /// Runs JIT-compiled code, with a low step limit, on matches that start in [begin, last]. Returns PCRE2's
  /// result code.
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
