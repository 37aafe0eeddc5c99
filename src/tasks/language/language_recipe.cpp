#include "tasks/language/language_recipe.h"

#include "base/error.h"
#include "hub/adapter.h"
#include "tasks/task_def.h"
#include "text/chat.h"
#include "text/inspect.h"

namespace hearth::tasks {

namespace {

/// Prints how training would use a text file, and returns the number of invalid records.
int64_t check_text(const TextSource& source, const recipe::Recipe& recipe, const fs::path& path,
                   const DataReport& report) {
  const text::DataFile file = source.open(path);
  const text::SampleReader reader = source.reader(file);
  const text::InspectOptions options{
      .marking = report.has_colors ? text::Marking::color : text::Marking::signs,
      .context = recipe.data.context,
      .check = [&](const text::Sample& sample) { check_answers(sample, reader, recipe::has_pairs(recipe)); }};
  const text::TextSummary summary = text::summarize(reader, options);
  // Prints without escaping, because the text contains ANSI colors and describe() has escaped other control
  // characters.
  report.print(text::describe(summary, reader, options));
  return summary.faults.total();
}

}  // namespace

LanguageModelOptions language_options(const Job& job) {
  if (job.decoder->tied_head) hub::check_untied(job.adapter);
  return {.config = *job.decoder,
          .context = job.recipe.data.context,
          .documents = recipe::has_documents(job.recipe),
          .distill = job.recipe.distill,
          .teacher = job.teacher,
          .teacher_vocab_size = job.teacher_vocab_size,
          .teacher_top_k = job.teacher_file ? int64_t{job.teacher_file->top_k} : 0};
}

int64_t check_texts(const Job& job, const DataReport& report) {
  const recipe::Recipe& recipe = job.recipe;
  const TextSource source(text_options(recipe), *job.decoder);
  int64_t num_left_out = 0;
  for (const fs::path& path : {recipe.data.path, fs::path(recipe.data.val_path)}) {
    if (path.empty() || path.extension() == ".safetensors") continue;
    const int64_t bad = check_text(source, recipe, path, report);
    if (bad > 0 && recipe.data.bad_records != recipe::BadRecords::skip)
      user_error("{} invalid records in {}; fix them, or set data.bad_records=skip", bad, path.string());
    num_left_out += bad;
  }
  return num_left_out;
}

std::vector<std::string> fill_in_date(recipe::Recipe& recipe, const recipe::Recipe* trained) {
  std::string& date = recipe.data.date;
  if (!date.empty() || !uses_date(text_options(recipe))) return {};
  if (trained != nullptr) date = trained->data.date;
  if (date.empty()) date = text::today();
  return {};
}

extern const TaskDef language_task;
const TaskDef language_task = {
    .name = "language",
    .owns = recipe::is_text,
    .objective = [](const Job& job) { return language_model(language_options(job)); },
    .open = [](const Job& job, int) -> std::unique_ptr<Task> { return std::make_unique<TextTask>(job); },
    .fill_in = fill_in_date,
    .check_records = check_texts,
    .distills = true,
    .model_format = ModelFormat::transformers,
    .evaluates_any_model = true,
    .generates = "text"};

}  // namespace hearth::tasks
