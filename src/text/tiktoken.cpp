#include <array>
#include <charconv>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "text/base64.h"
#include "text/formats.h"

namespace hearth::text {
namespace {

constexpr int32_t kLlama3Ranks = 128'000;
constexpr uint64_t kLlama3Hash = 0xFBEA6CD2D94376AF;
constexpr int32_t kLlama3Specials = 256;

struct RankedToken {
  std::string bytes;
  int64_t rank;
};

std::optional<RankedToken> parse_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> bytes = from_base64(line.substr(0, space));
  int64_t rank = -1;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
  if (!bytes || error != std::errc() || stop != end) return std::nullopt;
  return RankedToken{std::move(*bytes), rank};
}

Vocabulary parse_ranks(std::string_view text, std::string_view file) {
  Vocabulary vocabulary;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    const std::optional<RankedToken> token = parse_line(line);
    if (!token) user_error("{}:{}: expected a token in base64 and its rank", file, number);
    vocabulary.add(token->bytes, token->rank, fmt::format("{}:{}", file, number));
  }
  return vocabulary;
}

/// True if the vocabulary is that of Llama 3, compared by hash. A rank file does not define how text is
/// split, so only this file is accepted.
bool is_llama3(const Vocabulary& vocabulary) {
  if (vocabulary.size() != kLlama3Ranks) return false;
  std::string all;
  for (int32_t id = 0; id < vocabulary.size(); ++id) all.append(vocabulary.token(id)).push_back('\n');
  return hash64(all) == kLlama3Hash;
}

/// Returns Llama 3's special tokens, which are defined in Meta's code (models/llama3/tokenizer.py of
/// llama-models) and not in the file.
std::vector<AddedToken> llama3_specials() {
  constexpr std::array<const char*, 12> kNamed = {"begin_of_text",
                                                  "end_of_text",
                                                  "reserved_special_token_0",
                                                  "reserved_special_token_1",
                                                  "finetune_right_pad_id",
                                                  "step_id",
                                                  "start_header_id",
                                                  "end_header_id",
                                                  "eom_id",
                                                  "eot_id",
                                                  "python_tag",
                                                  "image"};
  std::vector<AddedToken> added;
  for (int32_t i = 0; i < kLlama3Specials; ++i) {
    const auto index = static_cast<size_t>(i);
    const std::string name = index < kNamed.size()
                                 ? std::string(kNamed[index])
                                 : fmt::format("reserved_special_token_{}", 2 + index - kNamed.size());
    added.push_back({.content = fmt::format("<|{}|>", name), .id = kLlama3Ranks + i, .special = true});
  }
  return added;
}

}  // namespace

bool is_tiktoken(std::string_view bytes) { return parse_line(take_line(bytes)).has_value(); }

std::unique_ptr<Tokenizer> parse_tiktoken(std::string_view bytes, std::string_view file,
                                          const TokenizerConfig& given) {
  TokenizerConfig config = given;
  Vocabulary vocabulary = parse_ranks(bytes, file);
  if (!is_llama3(vocabulary)) {
    user_error(
        "{}: the {} ranks are not those of Llama 3, and a rank file does not define how text is split; use a "
        "folder with tokenizer.json",
        file, vocabulary.size());
  }
  if (config.added.empty()) {
    config.added = llama3_specials();
    if (!config.bos) config.bos = "<|begin_of_text|>";
    if (!config.eos) config.eos = "<|end_of_text|>";
    if (!config.pad) config.pad = "<|finetune_right_pad_id|>";
  }
  std::vector<int32_t> rank;
  for (int32_t id = 0; id < vocabulary.size(); ++id) rank.push_back(id);
  const std::vector<Merge> merges = merges_from_ranks(vocabulary, rank, file);
  SpecialIds special;
  set_roles(special, config, config.added, nullptr);
  set_surroundings(special, config, true, false);
  return std::make_unique<Pipeline>(Parts{
      .added = std::move(config.added),
      .pre_tokenizer =
          PreTokenizer({SplitStep{.pattern = {.regex = std::make_shared<Regex>(kLlama3Pattern, file)}}}),
      .model = Bpe(std::move(vocabulary), merges, {.byte_level = true, .ignore_merges = true}, file),
      .special = std::move(special)});
}

}  // namespace hearth::text
