#include "tasks/language/text_task.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/run_files.h"
#include "models/torch_dtype.h"
#include "text/inspect.h"
#include "text/kd_sidecar.h"
#include "text/tokenizer.h"

namespace hearth::tasks {
namespace {

using Pieces = std::vector<TextPiece>;

const recipe::Recipe& checked(const recipe::Recipe& recipe) {
  if (recipe.data.balance)
    user_error("data.balance=true is for image models, got {}; set data.balance=false",
               recipe::model_name(recipe));
  return recipe;
}

/// Returns a piece for each sample, or for each pair of samples, with the length of its longer answer.
Pieces whole_samples(const text::TokenCache& tokens, bool pairs) {
  Pieces pieces;
  for (int64_t i = 0; i < tokens.num_samples(); i += pairs ? 2 : 1) {
    pieces.push_back({.sample = i, .length = std::ssize(tokens.sample(i))});
    if (pairs) pieces.back().length = std::max(pieces.back().length, std::ssize(tokens.sample(i + 1)));
  }
  return pieces;
}

/// Removes the last fraction `share` of the samples from `pieces` and returns it. With `by_tokens`, a single
/// sample is split by tokens.
Pieces split_off_end(Pieces& pieces, double share, bool by_tokens) {
  const auto kept = [&](int64_t count) {
    return static_cast<int64_t>(static_cast<double>(count) * (1 - share));
  };
  if (by_tokens && pieces.size() == 1) {
    const TextPiece whole = pieces[0];
    const int64_t length = kept(whole.length);
    pieces[0].length = length;
    return {{.sample = whole.sample, .first = length, .length = whole.length - length}};
  }
  const auto first = pieces.begin() + kept(std::ssize(pieces));
  Pieces end(first, pieces.end());
  pieces.erase(first, pieces.end());
  return end;
}

Overlong overlong_of(const recipe::Data& data, const fs::path& file) {
  if (data.overlong != Overlong::automatic) return data.overlong;
  const bool is_text = data.is_stream(file) || file.extension() == ".txt";
  return is_text ? Overlong::split : Overlong::truncate;
}

/// Returns a context length in tokens into which at least 90% of the samples fit, for messages.
int64_t common_context(const TextRows& rows) {
  constexpr int64_t kStep = 64;
  return (rows.common_length() + kStep - 1) / kStep * kStep;
}

void check_rows(const TextRows& rows, const char* purpose, const char* advice) {
  if (rows.num_rows() > 0) return;
  const RowCounts& counts = rows.counts();
  const bool is_short = counts.dropped + counts.untrained_start > 0;
  user_error(
      "found no samples {} in {} ({} read, {} with nothing to train on, {} longer than {} tokens); try {}",
      purpose, rows.options().name, counts.samples, counts.untrained, counts.dropped, rows.options().context,
      is_short ? fmt::format("data.context={}", common_context(rows)) : advice);
}

[[noreturn]] void refuse_all_held_out(const fs::path& file, int64_t count, double share) {
  user_error(
      "{}: {} sample{} held out for validation (data.val_share={}), which leaves none to train on; add "
      "samples, or set data.val_path to a file to validate on, which may be the same",
      file.string(), count == 1 ? "its only" : fmt::format("all of its {}", count),
      count == 1 ? " is" : "s are", share);
}

/// True if `part` exceeds 10% of `whole`.
bool exceeds_tenth(int64_t part, int64_t whole) { return 10 * part > whole; }

/// Returns a warning if more than 10% of the samples are longer than the context; otherwise empty.
std::string overlong_note(const TextRows& rows) {
  const RowCounts& counts = rows.counts();
  const int64_t left_out = counts.dropped + counts.untrained_start, unfit = left_out + counts.truncated;
  if (!exceeds_tenth(unfit, counts.samples)) return "";
  return fmt::format(
      "warning: {} of {} samples do not fit data.context={}: {} are left out, {} are cut; data.context={} "
      "would hold 90% of the samples whole",
      unfit, counts.samples, rows.options().context, left_out, counts.truncated, common_context(rows));
}

/// Returns a warning if more than 10% of the samples have no trained token, even with a longer context;
/// otherwise empty.
std::string untrained_note(const RowCounts& counts) {
  const int64_t count = counts.untrained - counts.untrained_start;
  if (!exceeds_tenth(count, counts.samples)) return "";
  return fmt::format("warning: {} of {} samples are left out because they have nothing to train on", count,
                     counts.samples);
}

/// Returns the text of a row in parts, without padding at its end. Labels are shifted by one: token i counts
/// in the loss if token i - 1 has a label (>= 0) and both belong to the same document. Positions start at 0
/// in each document; each document starts on a new line.
std::vector<io::TextPart> text_parts(const text::Tokenizer& tokenizer, std::span<const int32_t> ids,
                                     std::span<const int32_t> labels, std::span<const int32_t> positions,
                                     int32_t padding) {
  const auto is_trained = [&](size_t i) { return positions[i] > 0 && labels[i - 1] >= 0; };
  size_t end = ids.size();
  while (end > 0 && ids[end - 1] == padding && !is_trained(end - 1)) --end;
  std::vector<io::TextPart> parts;
  for (size_t i = 0; i < end;) {
    const size_t first = i;
    const bool trained = is_trained(i);
    for (++i; i < end && positions[i] > 0 && is_trained(i) == trained; ++i) continue;
    if (positions[first] == 0 && first > 0) parts.push_back({.text = "\n"});
    parts.push_back({.text = tokenizer.decode(ids.subspan(first, i - first)), .is_trained = trained});
  }
  return parts;
}

double percent(int64_t part, int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
}

}  // namespace

std::string incomplete_samples_text(const RowCounts& counts) {
  std::string text;
  if (counts.truncated > 0) text += fmt::format(", {} cut", counts.truncated);
  if (counts.dropped > 0) text += fmt::format(", {} too long and left out", counts.dropped);
  if (counts.untrained > 0)
    text += fmt::format(", {} without anything to train on left out", counts.untrained);
  return text;
}

TextTask::TextTask(const Job& job)
    : options_(text_options(checked(job.recipe))),
      batch_(job.recipe.train.batch),
      teacher_top_k_(job.teacher_file ? int64_t{job.teacher_file->top_k} : 0),
      adapts_(job.recipe.adapter.wanted()),
      config_(*job.decoder),
      config_json_(job.config_json),
      source_(options_, config_),
      train_tokens_(source_.tokens(options_.data.path)) {
  const recipe::Data& data = options_.data;
  if (!data.val_path.empty()) held_out_tokens_ = source_.tokens(data.val_path);
  pack_rows();
  if (!data.packing) lengths_ = tasks::row_lengths(*train_, *held_out_);
  counting_order_.emplace(*train_, data.shuffle, lengths_);
  if (job.teacher_file) open_teacher(job.recipe.distill.from);
}

text::TeacherHeader TextTask::teacher_header(int64_t top_k) const {
  const auto [vocab_size, digest] = source_.vocabulary();
  Hasher rows;
  const uint64_t tokens = train_->digest();
  rows.update(std::as_bytes(std::span(&tokens, 1)));
  rows.update(std::as_bytes(std::span(train_->lengths())));
  rows.update(std::as_bytes(std::span(lengths_)));
  return {.top_k = static_cast<uint32_t>(std::min(top_k, vocab_size)),
          .vocab_size = static_cast<uint32_t>(vocab_size),
          .num_entries = static_cast<uint64_t>(train_->num_trained()),
          .context = static_cast<uint64_t>(options_.data.context),
          .tokenizer = digest,
          .rows = rows.digest()};
}

void TextTask::open_teacher(const fs::path& path) {
  if (text::is_kd_sidecar(path)) return open_sidecar(path);
  auto file = std::make_unique<text::TeacherFile>(path);
  const text::TeacherHeader& found = file->header();
  const text::TeacherHeader wanted = teacher_header(found.top_k);
  if (found.vocab_size != wanted.vocab_size)
    user_error(
        "{}: the teacher's tokenizer has {} tokens, but the student's has {}; use a teacher with the same "
        "tokenizer",
        path.string(), found.vocab_size, wanted.vocab_size);
  if (found.tokenizer != wanted.tokenizer)
    user_error(
        "{}: the teacher has another tokenizer than the student; use a teacher with the same tokenizer",
        path.string());
  if (found.context != wanted.context)
    user_error(
        "{} was captured with data.context={}, but the recipe has data.context={}; set data.context={}, or "
        "capture again",
        path.string(), found.context, wanted.context, found.context);
  if (found.rows != wanted.rows || found.num_entries != wanted.num_entries)
    user_error(
        "{} was captured from other data or other data keys, which give other rows of tokens; capture again "
        "with hearth distill capture TEACHER --recipe RECIPE",
        path.string());
  teacher_ = std::move(file);
  train_->set_teacher(*teacher_, first_teacher_entries(*train_, lengths_));
}

void TextTask::open_sidecar(const fs::path& path) {
  const fs::path shard = text::shard_of_sidecar(path);
  if (!path_exists(shard))
    user_error("{} is the sidecar of the token shard '{}', which does not exist; copy the shard there",
               path.string(), shard.string());
  auto sidecar = std::make_unique<text::KdSidecar>(path, shard, source_.vocabulary().first);
  const auto refuse = [&](std::string_view what) {
    user_error("{} was captured from other tokens than those of {}: {}; train on the tokens of its shard",
               path.string(), options_.data.path.string(), what);
  };
  if (sidecar->num_tokens() != train_tokens_.num_tokens())
    refuse(fmt::format("{} tokens instead of {}", sidecar->num_tokens(), train_tokens_.num_tokens()));
  int64_t position = 0;
  for (int64_t i = 0; i < train_tokens_.num_samples(); ++i)
    for (const text::PackedToken token : train_tokens_.sample(i))
      if (!sidecar->has_token(position++, token.id())) refuse(fmt::format("token {} differs", position - 1));
  if (train_->end_of_labels() > sidecar->num_entries())
    user_error(
        "{} has entries for {} of {} tokens, but training needs {}; hold out the others with data.val_share",
        path.string(), sidecar->num_entries(), sidecar->num_tokens(), train_->end_of_labels());
  teacher_ = std::move(sidecar);
  train_->set_teacher(*teacher_, {});
}

void TextTask::pack_rows() {
  const recipe::Data& data = options_.data;
  const auto rows_of = [&](const text::TokenCache& tokens, Pieces pieces, const fs::path& file) {
    return std::make_unique<TextRows>(tokens, std::move(pieces),
                                      RowOptions{.context = data.context,
                                                 .overlong = overlong_of(data, file),
                                                 .packing = data.packing,
                                                 .pairs = options_.pairs,
                                                 .documents = options_.documents,
                                                 .padding = source_.padding(),
                                                 .teacher_top_k = teacher_top_k_,
                                                 .name = file.string()});
  };
  const fs::path& file = data.path;
  Pieces pieces = whole_samples(train_tokens_, options_.pairs);
  const auto num_pieces = std::ssize(pieces);
  if (held_out_tokens_) {
    held_out_ = rows_of(*held_out_tokens_, whole_samples(*held_out_tokens_, options_.pairs), data.val_path);
  } else {
    held_out_ = rows_of(train_tokens_, split_off_end(pieces, data.val_share, data.is_stream(file)), file);
    if (pieces.empty() && num_pieces > 0) refuse_all_held_out(file, num_pieces, data.val_share);
  }
  train_ = rows_of(train_tokens_, std::move(pieces), file);
  check_rows(*train_, "to train on", "hearth validate, which shows samples");
  check_rows(*held_out_, "held out", "a higher data.val_share, or data.val_path=FILE");
}

int64_t TextTask::num_samples(const data::LoaderPosition& from, int64_t count) const {
  return counting_order_->num_trained(from, count);
}

std::unique_ptr<BatchStream> TextTask::open(const data::LoaderPosition& from,
                                            const data::LoaderShare& share) const {
  if (from.sample >= num_rows()) {
    user_error(
        "the data has changed since the run began: an epoch has {} rows, but the run is at row {}; start a "
        "new run",
        num_rows(), from.sample);
  }
  return stream_rows(*train_, batch_, options_.data.shuffle, lengths_, from, share);
}

Evaluation TextTask::evaluate(engine::Engine& engine, int64_t) const {
  const auto stream = stream_rows(*held_out_, batch_, false, lengths_, {});
  Evaluation result;
  for (int64_t done = 0; done < num_eval_rows();) {
    const engine::MicroBatch batch = stream->next();
    result.loss += engine.evaluate(batch);
    done += batch.num_rows;
  }
  result.loss /= static_cast<double>(held_out_->num_trained());
  result.score = -result.loss;
  result.metrics = {{"perplexity", std::exp(result.loss)}};
  return result;
}

std::string TextTask::left_out_text() const {
  const int64_t count =
      train_tokens_.notes().left_out + (held_out_tokens_ ? held_out_tokens_->notes().left_out : 0);
  return count == 0 ? "" : fmt::format(", {} bad record{} left out", count, count == 1 ? "" : "s");
}

std::string TextTask::describe() const {
  const int64_t places = num_rows() * options_.data.context;
  return fmt::format(
      "{} sample{} in {} rows of {} ({:.1f}% filled{}{}), {} of {} tokens trained; {} rows held out",
      train_->counts().samples, train_->counts().samples == 1 ? "" : "s", num_rows(), options_.data.context,
      percent(train_->num_tokens(), places), incomplete_samples_text(train_->counts()), left_out_text(),
      train_->num_trained(), train_->num_tokens(), num_eval_rows());
}

std::string TextTask::warning() const {
  int64_t longest = 0;
  for (const text::TokenCache* tokens : {&train_tokens_, held_out_tokens_ ? &*held_out_tokens_ : nullptr}) {
    if (tokens == nullptr) continue;
    for (const int64_t length : tokens->lengths()) longest = std::max(longest, length);
  }
  return models::context_note(config_, std::min(longest, options_.data.context));
}

std::string TextTask::training_warning() const {
  std::vector<std::string> notes = {models::dropout_note(config_), overlong_note(*train_),
                                    untrained_note(train_->counts()), bad_records_note(), reasoning_note()};
  std::erase(notes, "");
  return fmt::format("{}", fmt::join(notes, "\n"));
}

std::string TextTask::reasoning_note() const {
  const int64_t count = train_tokens_.notes().without_reasoning;
  return count == 0 ? "" : "warning: " + text::unprinted_reasoning(count);
}

std::string TextTask::bad_records_note() const {
  const int64_t bad = train_tokens_.notes().left_out;
  const int64_t records = bad + train_tokens_.num_samples() / (options_.pairs ? 2 : 1);
  if (!exceeds_tenth(bad, records)) return "";
  return fmt::format(
      "warning: {} of {} records of {} cannot be used and are left out; hearth validate lists them", bad,
      records, options_.data.path.string());
}

std::string TextTask::score_text(double score) const {
  return fmt::format("perplexity {:.3f}", std::exp(-score));
}

void TextTask::report(const Evaluation&, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training samples", std::to_string(train_->counts().samples));
  data.summary.emplace_back("training tokens", std::to_string(train_->num_trained()));
  data.summary.emplace_back("validation tokens", std::to_string(held_out_->num_trained()));
  data.score = {"Validation perplexity", "perplexity", io::read_curve(log, "eval_perplexity")};
}

void TextTask::show_samples(const data::LoaderPosition& from, int64_t count, io::ReportData& page) const {
  const auto tokenizer = text::open_tokenizer(tokenizer_path(options_.model));
  RowOrder order(*train_, options_.data.shuffle, lengths_);
  const int64_t length = train_->options().context, num_answers = train_->num_answers();
  const auto size = static_cast<size_t>(length * num_answers);
  std::vector<int32_t> ids(size), starts(size), positions(size), labels(size);
  data::LoaderPosition at = from;
  for (count = std::min(count, num_rows() - from.sample); at.sample < from.sample + count; ++at.sample) {
    train_->fill(order.row_at(at),
                 {.ids = ids, .document_starts = starts, .positions = positions, .labels = labels});
    for (int64_t answer = 0; answer < num_answers; ++answer) {
      const auto part = [&](const std::vector<int32_t>& whole) {
        return std::span(whole).subspan(static_cast<size_t>(answer * length), static_cast<size_t>(length));
      };
      std::string caption = fmt::format("Row {}", at.sample + 1);
      if (num_answers == 2) caption += answer == 0 ? ", chosen answer" : ", rejected answer";
      page.texts.push_back({.caption = std::move(caption),
                            .parts = text_parts(*tokenizer, part(ids), part(labels), part(positions),
                                                train_->options().padding)});
    }
  }
}

int64_t TextTask::staging_bytes() const {
  return train_->num_bytes() + held_out_->num_bytes() + row_staging_bytes(*train_, batch_);
}

void TextTask::save_config(const fs::path& file, DType weights) const {
  auto json = parse_json_object<nlohmann::ordered_json>(config_json_, options_.model.config_file().string());
  json["dtype"] = json["torch_dtype"] = models::torch_name(weights);
  write_file_atomically(file, models::with_both_versions(json, config_).dump(2) + "\n");
}

void TextTask::save_companions(const fs::path& run, DType weights) const {
  if (!adapts_) save_config(run / kModelConfig, weights);
  std::vector<fs::path> files = text::tokenizer_files(tokenizer_path(options_.model));
  files.push_back(tokenizer_folder(options_.model) / "generation_config.json");
  for (const fs::path& file : files) {
    if (fs::is_regular_file(file)) write_file_atomically(run / file.filename(), read_file(file));
  }
  if (!source_.named_template().empty())
    write_file_atomically(run / "chat_template.jinja", source_.named_template());
}

}  // namespace hearth::tasks
