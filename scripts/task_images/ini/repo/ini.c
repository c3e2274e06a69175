/* Prints one value of an ini file. */
#include <stdio.h>
#include <string.h>

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1]))
        text[--length] = '\0';
    return text;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: ini FILE SECTION KEY\n");
        return 2;
    }
    FILE *file = fopen(argv[1], "r");
    if (file == NULL) {
        perror(argv[1]);
        return 2;
    }
    char line[1024], section[1024] = "";
    while (fgets(line, sizeof line, file)) {
        char *text = trim(line);
        char *equals = strchr(text, '=');
        if (*text == '[' && text[strlen(text) - 1] == ']') {
            text[strlen(text) - 1] = '\0';
            strcpy(section, text + 1);
        } else if (equals != NULL && strcmp(section, argv[2]) == 0) {
            *equals = '\0';
            if (strcmp(trim(text), argv[3]) == 0) {
                printf("%s\n", trim(equals + 1));
                fclose(file);
                return 0;
            }
        }
    }
    fclose(file);
    return 1;
}
