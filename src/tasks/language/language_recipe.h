#pragma once

#include "tasks/data_report.h"
#include "tasks/job.h"
#include "tasks/language/language_model.h"
#include "tasks/language/text_task.h"

/// Options of language models, from recipes.
namespace hearth::tasks {

TextOptions text_options(const recipe::Recipe& recipe);
/// UserError if data.balance is set, which is for images.
TextTaskOptions text_task_options(const Job& job);
/// UserError if a tied head would be adapted.
LanguageModelOptions language_options(const Job& job);
/// Reports what training would see of the text files; returns the number of records that are left out.
int64_t check_texts(const Job& job, const DataReport& report);
/// Sets an empty data.date if the chat template asks for the date: the one that an existing run was trained
/// with (null: new run), otherwise today's. Returns no notes.
std::vector<std::string> fill_in_date(recipe::Recipe& recipe, const recipe::Recipe* trained);

}  // namespace hearth::tasks
