#include "tasks/language/text_source.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/text.h"
#include "hub/gguf_model.h"
#include "io/safetensors.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kMaxTemplateBytes = int64_t{64} << 20;

fs::path cache_file(const recipe::Data& data, const fs::path& file, uint64_t key) {
  return cache_folder(data) / fmt::format("{}-{:016x}.tokens", file.stem().string(), key);
}

/// Reads token ids from a safetensors file: "tokens", integers [N].
text::Tokens read_token_ids(const fs::path& path, int64_t vocab_size) {
  const io::SafetensorsFile file(path);
  const io::TensorView* found = file.find("tokens");
  if (found == nullptr || found->shape.rank() != 1 || is_floating(found->dtype))
    user_error("{}: expected integer tokens [N]", path.string());
  text::Tokens tokens;
  for (int64_t i = 0; i < found->shape[0]; ++i) {
    const double id = load_element(found->dtype, found->bytes.data(), i);
    if (!(id >= 0 && id < static_cast<double>(vocab_size))) {
      user_error("{}: expected tokens from 0 to {}, got {} at index {}", path.string(), vocab_size - 1, id,
                 i);
    }
    tokens.ids.push_back(static_cast<int32_t>(id));
  }
  tokens.trained.assign(tokens.ids.size(), 1);
  return tokens;
}

text::FormatOptions format_options(const recipe::Data& data) {
  text::FormatOptions format{.format = data.format};
  for (const std::string& field : data.fields) {
    const size_t equals = field.find('=');
    format.fields.emplace_back(field.substr(0, equals), field.substr(equals + 1));
  }
  return format;
}

std::string read_template(const std::string& name) {
  if (name.empty()) return "";
  if (const auto built_in = text::built_in_template(name)) return *built_in;
  if (fs::is_regular_file(name)) return read_file(name, kMaxTemplateBytes);
  const std::vector<std::string> names = text::built_in_templates();
  user_error("expected {} or a file for data.template, got '{}'{}", fmt::join(names, ", "), name,
             did_you_mean(name, names));
}

text::TextUnit unit_of(recipe::Document document) {
  if (document == recipe::Document::paragraph) return text::TextUnit::paragraph;
  return document == recipe::Document::line ? text::TextUnit::line : text::TextUnit::file;
}

/// Throws a UserError about the first invalid record in `faults`; does nothing if there is none.
void refuse(const text::Faults& faults) {
  if (faults.total() == 0) return;
  const std::string more =
      faults.total() > 1 ? fmt::format(" (and {} more bad records)", faults.total() - 1) : "";
  user_error("{}{}; run hearth validate to list the bad records", faults.sentences().front(), more);
}

}  // namespace

void check_answers(const text::Sample& sample, const text::SampleReader& reader, bool pairs) {
  if (sample.rejected.has_value() == pairs) return;
  const std::string where = fmt::format("{}:{}", reader.file().path().string(), sample.line);
  if (pairs) {
    user_error(
        "{}: expected a record with a chosen and a rejected answer for train.objective=dpo, got {}; try {}",
        where, name_of(sample.format), "train.objective=cross_entropy");
  }
  user_error(
      "{}: expected a record with one answer, got one with a rejected answer too; try "
      "recipes/llama-dpo.yaml, or train.objective=dpo",
      where);
}

namespace {

/// Writes the samples of a file to the token cache. With `pairs`, each record is written as two samples: with
/// the chosen answer, then with the rejected one.
void produce(const text::SampleReader& reader, bool pairs, bool skips, text::TokenSink& sink) {
  text::Faults faults;
  int64_t num_unprinted = 0;
  if (!skips) {
    reader.check(faults);
    refuse(faults);
  }
  const auto visit = [&](const text::Sample& sample) {
    if (!skips) refuse(faults);
    check_answers(sample, reader, pairs);
    num_unprinted += sample.text.loses_reasoning ? 1 : 0;
    sink.add(sample.tokens, sample.line, sample.continues);
    if (sample.rejected) sink.add(*sample.rejected, sample.line, false);
  };
  reader.for_each(visit, faults);
  if (!skips) refuse(faults);
  sink.note({.left_out = faults.total(), .without_reasoning = num_unprinted});
}

std::pair<int64_t, uint64_t> vocabulary_of(const text::Tokenizer& tokenizer) {
  Hasher hasher;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string token = tokenizer.token(id) + '\n';
    hasher.update(std::as_bytes(std::span(token)));
  }
  return {tokenizer.vocab_size(), hasher.digest()};
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

}  // namespace

std::pair<int64_t, uint64_t> vocabulary_of(const fs::path& tokenizer) {
  return vocabulary_of(*text::open_tokenizer(tokenizer));
}

fs::path cache_folder(const recipe::Data& data) {
  if (!data.cache.empty()) return data.cache;
  if (fs::path folder = user_cache_folder(); !folder.empty()) return folder;
  user_error("no folder for tokens: neither data.cache nor HOME is set; set data.cache=DIR");
}

text::ChatOptions chat_options(const recipe::Data& data) {
  text::ChatOptions chat;
  chat.now = text::second_of_day(data.date.empty() ? text::today() : data.date);
  if (!chat.now) user_error("data.date must be a date like 2026-11-24, got '{}'", data.date);
  for (const std::string& variable : data.variables) text::add_variable(chat, variable);
  return chat;
}

bool uses_date(const TextOptions& options) {
  std::string chat_template = read_template(options.data.template_);
  if (chat_template.empty())
    chat_template = text::read_chat_setup(tokenizer_folder(options.model)).chat_template.value_or("");
  return chat_template.find("strftime_now") != std::string::npos;
}

fs::path tokenizer_path(const recipe::Model& model) {
  if (!model.tokenizer.empty()) return model.tokenizer;
  return model.config.empty() ? hub::unpack_gguf(model.path) : model.config_file().parent_path();
}

TextOptions text_options(const recipe::Recipe& recipe) {
  return {.model = recipe.model,
          .data = recipe.data,
          .pairs = recipe::has_pairs(recipe),
          .documents = recipe::has_documents(recipe)};
}

fs::path tokenizer_folder(const recipe::Model& model) {
  const fs::path path = tokenizer_path(model);
  const fs::path folder = model.tokenizer.empty() || fs::is_directory(path) ? path : path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

TextSource::TextSource(const TextOptions& options, const models::DecoderConfig& config)
    : options_(options),
      vocab_size_(config.vocab_size),
      named_template_(read_template(options.data.template_)) {}

const text::Tokenizer& TextSource::tokenizer() const {
  if (tokenizer_) return *tokenizer_;
  const recipe::Model& model = options_.model;
  const fs::path path = model.tokenizer.empty() ? tokenizer_folder(model) : fs::path(model.tokenizer);
  auto opened = text::open_tokenizer(path);
  if (opened->vocab_size() > vocab_size_) {
    user_error("the model has {} tokens ({}), but the tokenizer has {} ({}); use the model's tokenizer",
               vocab_size_, model.config_file().string(), opened->vocab_size(), path.string());
  }
  tokenizer_ = std::move(opened);
  return *tokenizer_;
}

int32_t TextSource::padding() const {
  return tokenizer_ ? tokenizer_->pad().value_or(tokenizer_->eos().value_or(0)) : 0;
}

std::pair<int64_t, uint64_t> TextSource::vocabulary() const {
  if (options_.data.path.extension() == ".safetensors") return {vocab_size_, 0};
  return vocabulary_of(tokenizer());
}

text::SampleOptions TextSource::sample_options() const {
  const text::ChatSetup setup = text::read_chat_setup(tokenizer_folder(options_.model), tokenizer());
  const text::SpecialIds& special = tokenizer().special();
  text::SampleOptions options{.format = format_options(options_.data),
                              .chat_template = setup.chat_template,
                              .template_name = setup.template_name,
                              .chat = chat_options(options_.data),
                              .eos = special.eos,
                              .train_on_prompt = options_.data.train_on_prompt};
  options.chat.train_on_generation_prompt = options_.data.train_on_generation_prompt;
  options.chat.bos_token = setup.bos_token;
  options.chat.eos_token = setup.eos_token;
  if (!special.prefix.empty()) options.bos = special.bos;
  if (!named_template_.empty()) {
    options.chat_template = named_template_;
    options.template_name = options_.data.template_;
  }
  return options;
}

text::DataFile TextSource::open(const fs::path& file) const {
  return text::DataFile(file, unit_of(options_.data.document));
}

text::SampleReader TextSource::reader(const text::DataFile& file) const {
  return {file, tokenizer(), sample_options()};
}

text::TokenCache TextSource::tokens(const fs::path& file) const {
  if (file.extension() == ".safetensors") return token_ids(file);
  const text::DataFile data = open(file);
  const text::SampleReader samples = reader(data);
  const bool skips = options_.data.bad_records == recipe::BadRecords::skip;
  std::string tokenizer_bytes;
  for (const fs::path& part : text::tokenizer_files(tokenizer_path(options_.model)))
    tokenizer_bytes += read_file(part);
  const uint64_t key = text::cache_key(
      data.bytes(), bytes_of(tokenizer_bytes),
      samples.fingerprint() + (options_.pairs ? " in pairs" : "") + (skips ? " but bad ones" : ""));
  const fs::path cached = cache_file(options_.data, file, key);
  return text::TokenCache::open_or_build(
      cached, key, [&](text::TokenSink& sink) { produce(samples, options_.pairs, skips, sink); });
}

text::TokenCache TextSource::token_ids(const fs::path& file) const {
  if (options_.pairs)
    user_error(
        "expected records with chosen and rejected answers for train.objective=dpo, got {}; try a .jsonl",
        file.string());
  const MappedFile data(file);
  const uint64_t key = text::cache_key(data.bytes(), {}, fmt::format("ids below {}", vocab_size_));
  const fs::path cached = cache_file(options_.data, file, key);
  return text::TokenCache::open_or_build(
      cached, key, [&](text::TokenSink& sink) { sink.add(read_token_ids(file, vocab_size_), 1, false); });
}

}  // namespace hearth::tasks
