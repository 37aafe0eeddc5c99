#pragma once

#include <string>
#include <string_view>

namespace hearth::text {

/// A regular expression of tokenizer.json, which Oniguruma reads there, as PCRE2 reads it with UTF, UCP and
/// MULTILINE. UserError naming `where` for what the two read differently and what cannot be said in PCRE2.
std::string pcre_of_oniguruma(std::string_view pattern, std::string_view where);

/// Members of a class: \w as Oniguruma has it in a class, and as the regex crate of Rust has it.
inline constexpr std::string_view kOnigurumaWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
inline constexpr std::string_view kRustWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

}  // namespace hearth::text
