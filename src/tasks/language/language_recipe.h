#pragma once

#include "tasks/data_report.h"
#include "tasks/language/language_model.h"
#include "tasks/language/text_task.h"

/// Converts a recipe's settings for language models to options.
namespace hearth::tasks {

/// Returns the options of the model and its loss. Throws a UserError if adapter.targets contains an output
/// head that shares its weights with the embeddings.
LanguageModelOptions language_options(const Job& job);
/// Prints how training would use the text files, and returns the number of records that are left out.
int64_t check_texts(const Job& job, const DataReport& report);
/// If data.date is empty and the chat template uses the date, sets it to the date of the existing run
/// `trained`, or to today for a new run (null). Returns no notes.
std::vector<std::string> fill_in_date(recipe::Recipe& recipe, const recipe::Recipe* trained);

}  // namespace hearth::tasks
