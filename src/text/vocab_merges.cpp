#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "text/bpe_files.h"
#include "text/formats.h"

namespace hearth::text {
namespace {

constexpr int64_t kMaxMergesBytes = int64_t{256} << 20;

/// Properties of transformers' tokenizer classes that use vocab.json and merges.txt.
struct TokenizerClass {
  const char* name;
  const char* pattern;
  bool nfc;
  /// True if <s> and </s> are put around each text.
  bool surrounded;
  /// True for CLIP: text is converted to lower case, only matches of the pattern are kept, and </w> is
  /// appended to each.
  bool words_end = false;
};

constexpr const char* kEndOfWord = "</w>";
constexpr const char* kClipPattern = R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";

const std::array<TokenizerClass, 8>& known_classes() {
  static const std::array<TokenizerClass, 8> known = {{{"", kGpt2Pattern, false, false},
                                                       {"GPT2Tokenizer", kGpt2Pattern, false, false},
                                                       {"CodeGenTokenizer", kGpt2Pattern, false, false},
                                                       {"Qwen2Tokenizer", kQwen2Pattern, true, false},
                                                       {"RobertaTokenizer", kGpt2Pattern, false, true},
                                                       {"BartTokenizer", kGpt2Pattern, false, true},
                                                       {"LEDTokenizer", kGpt2Pattern, false, true},
                                                       {"CLIPTokenizer", kClipPattern, true, true, true}}};
  return known;
}

const TokenizerClass& class_of(const TokenizerConfig& config) {
  for (const TokenizerClass& known : known_classes()) {
    if (config.tokenizer_class == known.name) return known;
  }
  user_error(
      "{}: field 'tokenizer_class': expected GPT2, CodeGen, Qwen2, Roberta, Bart, LED or CLIP with "
      "vocab.json and merges.txt, got {}; use a folder with tokenizer.json",
      (config.folder / "tokenizer_config.json").string(), config.tokenizer_class);
}

std::vector<Merge> read_merges(const fs::path& path, const Vocabulary& vocabulary) {
  const std::string text = read_file(path, kMaxMergesBytes);
  MergeReader reader(vocabulary, true);
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = take_line(rest);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) reader.add_line(line, path.string());
  }
  return reader.take();
}

PreTokenizer pre_tokenizer_of(const TokenizerClass& kind, const TokenizerConfig& config) {
  std::vector<PreTokenizerStep> steps;
  if (config.add_prefix_space) steps.emplace_back(PrefixSpaceStep{});
  steps.emplace_back(SplitStep{.pattern = {.regex = std::make_shared<Regex>(kind.pattern, "tokenizer")},
                               .matches = kind.words_end ? Split::removed : Split::isolated,
                               .invert = kind.words_end});
  return PreTokenizer(std::move(steps));
}

Normalizer normalizer_of(const TokenizerClass& kind) {
  std::vector<NormalizerStep> steps;
  if (kind.nfc) steps.emplace_back(Compose{UnicodeForm::nfc});
  if (kind.words_end) steps.emplace_back(Lowercase{});
  return Normalizer(std::move(steps));
}

/// Returns the added tokens of the config, and the special tokens of its roles that are only in the
/// vocabulary.
std::vector<AddedToken> added_of(const TokenizerConfig& config, const Vocabulary& vocabulary) {
  std::vector<AddedToken> added = config.added;
  const auto add = [&](const std::string& token) {
    const auto same = [&](const AddedToken& each) { return each.content == token; };
    const std::optional<int32_t> id = vocabulary.find(token);
    if (!id || std::any_of(added.begin(), added.end(), same)) return;
    added.push_back({.content = token, .id = *id, .special = true});
  };
  for (const auto& role : {config.bos, config.eos, config.pad, config.unk}) {
    if (role) add(*role);
  }
  return added;
}

}  // namespace

std::unique_ptr<Tokenizer> open_vocab_merges(const fs::path& vocab, const fs::path& merges,
                                             const TokenizerConfig& given) {
  TokenizerConfig config = given;
  const TokenizerClass& kind = class_of(config);
  const nlohmann::json json = read_json(vocab);
  Vocabulary vocabulary = parse_vocabulary(JsonNode(json, vocab.string()), true);
  constexpr const char* kGpt2End = "<|endoftext|>";
  if (config.tokenizer_class.empty() && !config.eos && vocabulary.find(kGpt2End)) {
    config.bos = config.eos = kGpt2End;
  }
  const std::vector<Merge> merge_list = read_merges(merges, vocabulary);
  std::vector<AddedToken> added = added_of(config, vocabulary);
  SpecialIds special;
  set_roles(special, config, added, &vocabulary);
  set_surroundings(special, config, kind.surrounded, kind.surrounded);
  BpeOptions options{.byte_level = true};
  if (kind.words_end) {
    options.unk = special.unk;
    options.end_of_word_suffix = kEndOfWord;
  }
  return std::make_unique<Pipeline>(
      Parts{.added = std::move(added),
            .normalizer = normalizer_of(kind),
            .pre_tokenizer = pre_tokenizer_of(kind, config),
            .model = Bpe(std::move(vocabulary), merge_list, std::move(options), vocab.string()),
            .decoder = kind.words_end ? Decoder({SuffixToSpace{kEndOfWord}}) : Decoder(),
            .special = std::move(special)});
}

}  // namespace hearth::text
