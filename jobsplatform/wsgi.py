"""The WSGI application that gunicorn serves."""

import os

from django.core.wsgi import get_wsgi_application

from jobsplatform.closing import closing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "jobsplatform.settings")
application = closing(get_wsgi_application())
