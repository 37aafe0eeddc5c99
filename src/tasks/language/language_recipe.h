#pragma once

#include "tasks/data_report.h"
#include "tasks/job.h"
#include "tasks/language/language_model.h"
#include "tasks/language/text_task.h"

/// Options of language models in recipes.
namespace hearth::tasks {

/// Returns the options of the tokenizer and the text data.
TextOptions text_options(const recipe::Recipe& recipe);
/// Returns the options of TextTask. UserError if data.balance is set, which is for images.
TextTaskOptions text_task_options(const Job& job);
/// Returns the options of the model and its loss. UserError if adapter.targets has a head that is tied to the
/// embeddings.
LanguageModelOptions language_options(const Job& job);
/// Reports how training would use the text files; returns the number of records that are left out.
int64_t check_texts(const Job& job, const DataReport& report);
/// Sets an empty data.date if the chat template uses the date: to the date that an existing run was trained
/// with (null: new run), otherwise to today. Returns no notes.
std::vector<std::string> fill_in_date(recipe::Recipe& recipe, const recipe::Recipe* trained);

}  // namespace hearth::tasks
