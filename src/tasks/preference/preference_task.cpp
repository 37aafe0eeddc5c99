#include "tasks/preference/preference_task.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/run_log.h"
#include "io/safetensors.h"

namespace hearth::tasks {
namespace {

constexpr const char* kReferenceFile = "reference.safetensors";

struct Part {
  const char* name;
  TextRows& rows;
};

io::TensorView view_of(const char* name, const TextRows& rows) {
  return {.name = name,
          .dtype = DType::f32,
          .shape = {rows.num_rows(), 2},
          .bytes = std::as_bytes(rows.reference())};
}

/// Returns the tensor with that name; null if it is missing or has another dtype or shape.
const io::TensorView* find(const io::SafetensorsFile& file, const char* name, DType dtype,
                           const Shape& shape) {
  const io::TensorView* found = file.find(name);
  return found != nullptr && found->dtype == dtype && found->shape == shape ? found : nullptr;
}

struct Sums {
  double chosen = 0, rejected = 0;
  int64_t right = 0;  ///< pairs whose chosen answer has the higher reward

  void add(const engine::MicroBatch& batch, std::span<const float> logps, double beta) {
    const auto* reference = batch.array<float>("reference");
    const auto reward = [&](size_t i) {
      return beta * (static_cast<double>(logps[i]) - static_cast<double>(reference[i]));
    };
    for (size_t i = 0; i < 2 * static_cast<size_t>(batch.num_rows); i += 2) {
      chosen += reward(i);
      rejected += reward(i + 1);
      right += reward(i) > reward(i + 1) ? 1 : 0;
    }
  }
};

}  // namespace

std::vector<float> PreferenceTask::reference_logprobs(engine::Engine& engine, const TextRows& rows) const {
  const auto stream = stream_rows(rows, batch_, false, lengths_, {});
  RowOrder order(rows, false, lengths_);
  std::vector<float> reference(2 * static_cast<size_t>(rows.num_rows()));
  for (data::LoaderPosition at; at.sample < rows.num_rows();) {
    const engine::MicroBatch batch = stream->next();
    engine.evaluate(batch);
    const std::span<const float> logps = engine.output(0);
    for (int64_t i = 0; i < batch.num_rows; ++i, ++at.sample)
      std::copy_n(logps.begin() + 2 * i, 2, reference.begin() + 2 * order.row_at(at));
  }
  return reference;
}

void PreferenceTask::begin(engine::Engine& engine, const Say& say) {
  if (has_reference_) return;
  has_reference_ = true;
  say(fmt::format("computing the reference log-probabilities of {} pairs", num_rows() + num_eval_rows()));
  for (TextRows* rows : {train_.get(), held_out_.get()})
    rows->set_reference(reference_logprobs(engine, *rows));
}

void PreferenceTask::save_initial_results(const fs::path& run) const {
  const std::array<uint64_t, 2> digests = {train_->digest(), held_out_->digest()};
  const std::vector<io::TensorView> views = {
      view_of("train", *train_),
      view_of("held_out", *held_out_),
      {.name = "digests", .dtype = DType::i64, .shape = {2}, .bytes = std::as_bytes(std::span(digests))}};
  replace_file(run / kReferenceFile, [&](const fs::path& path) { io::write_safetensors(path, views); });
}

void PreferenceTask::resume(const fs::path& run) {
  const io::SafetensorsFile file(run / kReferenceFile);
  const std::array<uint64_t, 2> digests = {train_->digest(), held_out_->digest()};
  const io::TensorView* kept = find(file, "digests", DType::i64, {2});
  const bool same = kept != nullptr && std::memcmp(kept->bytes.data(), digests.data(), sizeof(digests)) == 0;
  for (const Part& part : {Part{"train", *train_}, Part{"held_out", *held_out_}}) {
    const io::TensorView* found = find(file, part.name, DType::f32, {part.rows.num_rows(), 2});
    if (!same || found == nullptr) {
      user_error("the pairs have changed since the run began: {} is for other pairs; start a new run",
                 (run / kReferenceFile).string());
    }
    std::vector<float> reference(part.rows.reference().size());
    std::memcpy(reference.data(), found->bytes.data(), found->bytes.size());
    part.rows.set_reference(std::move(reference));
  }
  has_reference_ = true;
}

Evaluation PreferenceTask::evaluate(engine::Engine& engine, int64_t) const {
  const auto stream = stream_rows(*held_out_, batch_, false, lengths_, {});
  Evaluation result;
  Sums sums;
  for (int64_t done = 0; done < num_eval_rows();) {
    const engine::MicroBatch batch = stream->next();
    result.loss += engine.evaluate(batch);
    sums.add(batch, engine.output(0), beta_);
    done += batch.num_rows;
  }
  const auto pairs = static_cast<double>(num_eval_rows());
  result.loss /= pairs;
  result.score = -result.loss;
  result.metrics = {{"rewards/chosen", sums.chosen / pairs},
                    {"rewards/rejected", sums.rejected / pairs},
                    {"rewards/accuracies", static_cast<double>(sums.right) / pairs},
                    {"rewards/margins", (sums.chosen - sums.rejected) / pairs}};
  return result;
}

std::string PreferenceTask::describe() const {
  return fmt::format("{} pairs of answers of at most {} tokens{}; {} pairs held out", num_rows(),
                     options_.data.context, incomplete_samples_text(train_->counts()) + left_out_text(),
                     num_eval_rows());
}

std::string PreferenceTask::score_text(double score) const { return fmt::format("loss {:.4f}", -score); }

std::string PreferenceTask::evaluation_text(const Evaluation& found) const {
  return fmt::format("chosen answer preferred in {:.1f}%, margin {:.4f}", 100 * found.metrics[2].second,
                     found.metrics[3].second);
}

void PreferenceTask::report(const Evaluation&, const fs::path& log, io::ReportData& data) const {
  data.summary.emplace_back("training pairs", std::to_string(num_rows()));
  data.summary.emplace_back("validation pairs", std::to_string(num_eval_rows()));
  data.score = {"Chosen answers preferred", "share", io::read_curve(log, "eval_rewards/accuracies")};
}

}  // namespace hearth::tasks
