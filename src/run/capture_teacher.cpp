#include "run/capture_teacher.h"

#include "base/error.h"
#include "base/hash.h"
#include "hub/weights.h"
#include "planner/long_wait.h"
#include "run/device_rates.h"
#include "run/from_recipe.h"
#include "run/inputs.h"
#include "tasks/language/language_recipe.h"
#include "tasks/task_def.h"
#include "text/teacher_file.h"

namespace hearth::run {
namespace {

text::TeacherHeader header_of(const tasks::TextTask& task, const hub::ModelFolder& teacher, int64_t top_k) {
  text::TeacherHeader header = task.teacher_header(top_k);
  header.teacher = weights_digest(teacher.weights);
  if (!teacher.adapter.empty()) header.teacher ^= weights_digest(teacher.adapter);
  return text::sealed(header);
}

/// Adds the missing entries to the file, batch by batch. Uses the same batches as a capture from the start,
/// because the last bits of a result may depend on the number of rows.
void add_entries(engine::Engine& engine, const tasks::TextRows& rows, const std::vector<int64_t>& lengths,
                 int64_t batch, text::TeacherWriter& writer) {
  tasks::RowOrder order(rows, false, lengths);
  const auto top_k = static_cast<size_t>(writer.header().top_k);
  data::LoaderPosition at;
  int64_t entry = 0;
  const auto batch_at = [&] { return std::min(batch, rows.num_rows() - at.sample); };
  for (int64_t count = 0; at.sample < rows.num_rows(); at.sample += batch_at(), entry += count) {
    count = order.num_trained(at, batch_at());
    if (entry + count > writer.num_entries()) break;
  }
  const auto stream = tasks::stream_rows(rows, batch, false, lengths, at);
  while (at.sample < rows.num_rows()) {
    const engine::MicroBatch micro = stream->next();
    engine.evaluate(micro);
    const std::span<const int32_t> ids = engine.int_output(0);
    const std::span<const float> logps = engine.output(1);
    const auto* labels = micro.array<int32_t>("labels");
    for (size_t t = 0; t < ids.size() / top_k; ++t) {
      if (labels[t] < 0) continue;
      if (entry++ == writer.num_entries())
        writer.add(ids.subspan(t * top_k, top_k), logps.subspan(t * top_k, top_k));
    }
    at.sample += micro.num_rows;
  }
}

}  // namespace

recipe::Recipe with_model(recipe::Recipe recipe, const hub::ModelFolder& model) {
  recipe.distill = {};
  recipe.adapter = {};
  recipe.init.clear();
  recipe.model = {};
  recipe.model.path = model.model.string();
  recipe.adapter.path = model.adapter.string();
  if (model.text != model.model) recipe.model.tokenizer = model.text.string();
  return recipe;
}

CapturedTeacher capture_teacher(recipe::Recipe given, const hub::ModelFolder& teacher, int64_t top_k,
                                fs::path out, const PrintNote& print_note) {
  hub::check_weights(teacher);
  const tasks::Job job(with_model(std::move(given), teacher));
  const recipe::Recipe& recipe = job.recipe;
  if (!job.decoder || !tasks::task_of(recipe).distills)
    user_error(
        "hearth distill capture is for language models trained with cross-entropy; set "
        "train.objective=cross_entropy");
  const tasks::TextTask task(job);
  const text::TeacherHeader header = header_of(task, teacher, top_k);
  if (out.empty())
    out = tasks::cache_folder(recipe.data) /
          fmt::format("{}-{:016x}.teacher", recipe.data.path.stem().string(), header.digest);
  text::TeacherWriter writer(out, header);
  const CapturedTeacher captured{.file = out,
                                 .num_entries = static_cast<int64_t>(header.num_entries),
                                 .num_kept = writer.num_entries(),
                                 .top_k = header.top_k};
  if (captured.num_kept == captured.num_entries) return captured;

  engine::EngineOptions options = engine_options(job);
  options.objective = tasks::teacher_model(tasks::language_options(job), header.top_k, header.vocab_size);
  options.row_lengths = task.row_lengths();
  set_device_rates(options);
  const tasks::TextRows& rows = task.training_rows();
  const std::vector<int64_t> sizes = tasks::batch_sizes(rows.num_rows(), options.batch);
  const int64_t batch = options.batch;
  const auto engine = engine::evaluation_engine(std::move(options), sizes);
  const std::vector<int64_t> lengths = task.row_lengths();
  const engine::BatchShape largest{.num_rows = sizes.front(),
                                   .row_length = lengths.empty() ? 0 : lengths.front()};
  const auto num_batches = static_cast<double>((rows.num_rows() + batch - 1) / batch);
  const std::string wait = planner::long_wait(
      fmt::format("evaluating the teacher on {} tokens", captured.num_entries - captured.num_kept),
      num_batches * engine->plan().evaluation_seconds(largest));
  if (!wait.empty()) print_note(wait);
  hub::load_model(*engine, teacher);
  add_entries(*engine, rows, lengths, batch, writer);
  return captured;
}

}  // namespace hearth::run
