#include "text/tokenizer_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hearth::text {
namespace {

/// Reads the special token `key` into `role`: a string or an AddedToken object; null counts as absent. Keeps
/// a role that is already set.
void read_special_token(const JsonNode& node, const std::string& key, std::optional<std::string>& role) {
  const std::optional<JsonNode> found = node.find(key);
  if (!found || role) return;
  role = found->json().is_object() ? found->at("content").string() : found->string();
}

void read_special_tokens(const JsonNode& node, TokenizerConfig& config) {
  read_special_token(node, "bos_token", config.bos);
  read_special_token(node, "eos_token", config.eos);
  read_special_token(node, "pad_token", config.pad);
  read_special_token(node, "unk_token", config.unk);
}

void read_added_decoder(const JsonNode& node, TokenizerConfig& config) {
  for (const auto& [key, value] : node.members()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) value.refuse("an id as key of each token");
    config.added.push_back(parse_added_token(value, id));
  }
}

bool is_bert(std::string_view tokenizer_class) {
  constexpr auto kClasses = std::to_array<std::string_view>(
      {"BertTokenizer", "ConvBertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "FunnelTokenizer",
       "LayoutLMTokenizer", "LxmertTokenizer", "MobileBertTokenizer", "MPNetTokenizer", "RealmTokenizer",
       "RetriBertTokenizer", "SplinterTokenizer", "SqueezeBertTokenizer", "LayoutLMv2Tokenizer"});
  return std::find(kClasses.begin(), kClasses.end(), tokenizer_class) != kClasses.end();
}

/// Reads the options of BERT-like tokenizers; nothing for other classes. Old files have no class.
std::optional<BertOptions> read_bert(const JsonNode& node, std::string_view tokenizer_class) {
  const auto lowercase = node.find("do_lower_case"), chinese = node.find("tokenize_chinese_chars"),
             strip = node.find("strip_accents");
  const bool old = tokenizer_class.empty() && (lowercase || chinese || strip);
  if (!old && !is_bert(tokenizer_class)) return std::nullopt;
  BertOptions options{.lowercase = !lowercase || lowercase->boolean(),
                      .chinese = !chinese || chinese->boolean()};
  if (strip) options.strip_accents = strip->boolean();
  return options;
}

void read_config_file(const JsonNode& node, TokenizerConfig& config) {
  config.is_given = true;
  config.tokenizer_class = node.string_or("tokenizer_class", "");
  if (config.tokenizer_class.ends_with("Fast"))
    config.tokenizer_class.resize(config.tokenizer_class.size() - 4);
  read_special_tokens(node, config);
  if (const auto flag = node.find("add_bos_token")) config.add_bos = flag->boolean();
  if (const auto flag = node.find("add_eos_token")) config.add_eos = flag->boolean();
  config.add_prefix_space = node.boolean_or("add_prefix_space", false);
  config.bert = read_bert(node, config.tokenizer_class);
  config.legacy = node.boolean_or("legacy", true);
  if (const auto added = node.find("added_tokens_decoder")) read_added_decoder(*added, config);
}

/// Reads added tokens in the old format, a map from token to id without flags. All are special.
void read_added_map(const JsonNode& node, TokenizerConfig& config) {
  const auto known = [&](const std::string& content) {
    return std::any_of(config.added.begin(), config.added.end(),
                       [&](const AddedToken& token) { return token.content == content; });
  };
  for (const auto& [content, id] : node.members()) {
    const auto value = static_cast<int32_t>(id.integer(0, Vocabulary::kMaxId));
    if (!known(content)) config.added.push_back({.content = content, .id = value, .special = true});
  }
}

template <typename Read>
void if_present(const fs::path& path, TokenizerConfig& config, Read&& read) {
  if (!fs::is_regular_file(path)) return;
  const nlohmann::json json = read_json(path);
  read(JsonNode(json, path.string()), config);
}

}  // namespace

AddedToken parse_added_token(const JsonNode& node, std::optional<int64_t> id) {
  AddedToken token;
  token.content = node.at("content").string();
  if (token.content.empty()) node.at("content").refuse("a token that is not empty");
  const bool given = id && *id >= 0 && *id <= Vocabulary::kMaxId;
  if (id && !given) node.refuse(fmt::format("an id from 0 to {}", Vocabulary::kMaxId));
  token.id = static_cast<int32_t>(given ? *id : node.at("id").integer(0, Vocabulary::kMaxId));
  token.special = node.boolean_or("special", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  token.single_word = node.boolean_or("single_word", false);
  return token;
}

TokenizerConfig read_tokenizer_config(const fs::path& folder) {
  TokenizerConfig config{.folder = folder};
  if_present(folder / "tokenizer_config.json", config, read_config_file);
  if_present(folder / "special_tokens_map.json", config, read_special_tokens);
  if_present(folder / "added_tokens.json", config, read_added_map);
  return config;
}

std::optional<int32_t> find_token(std::string_view token, const std::vector<AddedToken>& added,
                                  const Vocabulary* vocabulary) {
  for (const AddedToken& each : added) {
    if (each.content == token) return each.id;
  }
  return vocabulary != nullptr ? vocabulary->find(token) : std::nullopt;
}

void set_roles(SpecialIds& special, const TokenizerConfig& config, const std::vector<AddedToken>& added,
               const Vocabulary* vocabulary) {
  const auto set = [&](std::optional<int32_t>& id, const std::optional<std::string>& token) {
    if (token) id = find_token(*token, added, vocabulary);
  };
  set(special.bos, config.bos);
  set(special.eos, config.eos);
  set(special.pad, config.pad);
  set(special.unk, config.unk);
}

void set_surroundings(SpecialIds& special, const TokenizerConfig& config, bool bos, bool eos) {
  if (config.add_bos.value_or(bos) && special.bos) special.prefix = {*special.bos};
  if (config.add_eos.value_or(eos) && special.eos) special.suffix = {*special.eos};
}

}  // namespace hearth::text
